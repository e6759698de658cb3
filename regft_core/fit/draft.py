"""An ordinary project folder from one file of rows: ``params.yaml``, the task's YAML, the pipeline files, the rows.

A draft of it in a temporary folder, with all methods, tells which of them can act on the rows, and what a run costs.
"""

from __future__ import annotations

import math
import os
import shutil
import tempfile
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from functools import cache, cached_property
from pathlib import Path
from typing import Any

from regft_core import __version__
from regft_core.data.lengths import STEP, Lengths, row_lengths
from regft_core.data.prepare import declaration_of
from regft_core.data.read_split import read_split
from regft_core.data.splits import split_dev
from regft_core.errors import ConfigError, DataError
from regft_core.fit.own_rows import Asked, Elsewhere, OwnRows
from regft_core.fit.setup import (
    CHANCE,
    FOLDS,
    LEAST_OF_LABEL,
    MOST_REPEATS,
    PARTS,
    OwnPreset,
    Price,
    Setup,
    choose,
    reading,
    solving_seconds,
    unread,
)
from regft_core.grid.measured_lengths import fast_tokenizer
from regft_core.grid.time import SetSize, estimate
from regft_core.hooks.compose import takes_steps
from regft_core.kinds import find
from regft_core.models.devices import cores, visible_devices
from regft_core.models.fetch import ALIASES
from regft_core.models.source import longest_input, resolve_model
from regft_core.names import listing, plural
from regft_core.schema.params import ExecutionConfig
from regft_core.schema.tasks import FoldsConfig
from regft_core.schema.training import EncoderConfig
from regft_core.settings.cost import PlanRow, run_cost
from regft_core.settings.document import yaml_text
from regft_core.settings.layers import nested
from regft_core.settings.method_errors import composition_errors
from regft_core.settings.preset import LINKED, make_folder, of_the_machine, write_changed
from regft_core.settings.project import Cell, Project
from regft_core.settings.read_project import open_project
from regft_core.settings.yaml_paths import OVERRIDE, TASKS, ships, task_file

#: Rows that ``max_length`` may cut, and tokens that it never exceeds without a word of the user's.
CUT, LONGEST = 0.05, 512
#: Tokens that are always kept: a batch is as long as its longest row, and new texts may be longer.
KEPT = 128
#: Seconds beside training: processes that start, the report, the export.
AROUND = 25.0
#: Seconds of solved runs up to which they run in this process: a worker takes 8 s to start and encodes rows again.
SERIAL = 200.0
#: Seconds of a run, and of a trial, beside its steps: the encoder is loaded, the result stored.
EACH = 0.5


@dataclass
class Draft:
    """A project that is chosen and written.

    Attributes:
        root: the project whose methods, encoders and pipeline files it takes.
        encoders: names as ``root`` knows them, the strongest first.
        texts: rows of the file of texts without labels, 0 without one.
        refused: method -> why it cannot act on these rows; known once it was ``chosen``.
    """

    root: Path
    asked: Asked
    rows: OwnRows
    preset: OwnPreset
    minutes: float
    encoders: Sequence[str]
    seed: int = 0
    elsewhere: Sequence[Elsewhere] = ()
    texts: int = 0
    refused: dict[str, str] = field(default_factory=dict)
    _trained: set[str] = field(default_factory=set)

    @property
    def task(self) -> str:
        return self.asked.task_name

    @cached_property
    def execution(self) -> dict[str, Any]:
        """The section of the user's ``params.yaml``; worker processes on a CPU are as many as its cores."""
        section = {"executor": "processes"} | (of_the_machine(self.root).get("execution") or {})
        if section["executor"] == "processes" and visible_devices(section.get("device", "auto")) == ["cpu"]:
            section["workers"] = min(64, max(1, cores() // section.get("threads", 1)))
        return section

    @cached_property
    def lengths(self) -> dict[str, Lengths]:
        """Encoder -> the rows in its tokens."""
        return {
            name: row_lengths(self.rows.examples, fast_tokenizer(source))
            for name in self.encoders
            for source in [resolve_model(EncoderConfig(name=name), self.root)]
        }

    def length(self, encoder: str) -> tuple[int, float]:
        """Return the tokens of a row that are kept, and the share of the rows that this cuts."""
        tokens, config = sorted(self.lengths[encoder].tokens), EncoderConfig(name=encoder)
        most = min(longest_input(resolve_model(config, self.root), config) or LONGEST, LONGEST)
        wanted = tokens[max(0, int((1 - CUT) * len(tokens) + 0.999) - 1)]
        length = min(most, max(KEPT, -(-wanted // STEP) * STEP))
        return length, sum(count > length for count in tokens) / len(tokens)

    def chosen(self) -> tuple[Setup, float, float, str]:
        """Return the set-up for the minutes, its seconds, those after the comparison, and what more minutes would buy.

        Raises ConfigError for minutes that are too few.
        """
        every = *self.preset.always, *self.preset.methods
        with tempfile.TemporaryDirectory(prefix="regft-fit-") as name:
            folder = Path(name).resolve()  # links are relative
            self.write(folder, Setup(self.encoders[0], 3, every, self.preset.trainings(every)))
            project = open_project(folder, check_composition=False)
            on_cpu = visible_devices(self.execution.get("device", "auto")) == ["cpu"]
            if on_cpu:  # what has to be measured is measured here
                execution = project.params.execution.model_copy(update={"executor": "serial"})
                project = replace(project, params=project.params.model_copy(update={"execution": execution}))
            task, encoder = project.tasks[self.task], project.model(self.task)
            for name, method in project.methods.items():
                if problems := composition_errors(project.builder, method, task, encoder, project.tasks):
                    self.refused[name] = problems[0]
            price = cache(lambda *setup: self._prices(project, folder, *setup))
            self._trained.update(name for name, method in project.methods.items() if takes_steps(method))
            if all(unread(self.rows.examples, encoder, self.lengths[encoder]) for encoder in self.encoders):
                self.refused |= dict.fromkeys(self._trained, "it trains the encoder, which does not read these texts")
            execution = ExecutionConfig.model_validate(self.execution)
            can_be_serial = on_cpu and execution.executor == "processes"

            def runs(setup: Setup) -> list[Price]:
                prices = price(setup.encoder, setup.folds, setup.trainings)
                return [prices[name] for name in setup.methods if name in prices]

            def seconds_of(setup: Setup, workers: int) -> float:
                # The final model has settings that are known then; where it is trained, it is counted as one more run.
                vectors = dict[Any, float]()
                for one in runs(setup):
                    vectors[one.read] = max(one.vectors, vectors.get(one.read, 0.0))
                all_runs = sum(one.run for one in runs(setup)) * setup.folds * setup.repeats * setup.size
                return AROUND + all_runs / workers + sum(vectors.values()) + final(setup)

            def final(setup: Setup) -> float:
                return max((one.final + one.vectors + setup.refit * one.more for one in runs(setup)), default=0.0)

            def is_serial(setup: Setup) -> bool:
                alone = can_be_serial and self._trained.isdisjoint(setup.methods)
                return alone and seconds_of(setup, 1) <= min(AROUND + SERIAL, 60 * self.minutes)

            def seconds(setup: Setup) -> float:
                return seconds_of(setup, 1 if is_serial(setup) else execution.workers)

            acting = [name for name in self.preset.methods if name not in self.refused]
            rows, most = len(self.rows.examples), self._most_folds(project)
            # A part of the rows has to have some of each label that counts, so that a model can be trained on it.
            parts = min(self.rows.in_every_fold, default=rows) >= LEAST_OF_LABEL * max(PARTS)
            setup, more = choose(self.preset, acting, self.encoders, rows, most, seconds, self.minutes, parts)
            return replace(setup, serial=is_serial(setup)), seconds(setup), AROUND + final(setup), more

    def _most_folds(self, project: Project) -> int:
        """Return how many folds the rows can be split into; groups, and equal texts, stay together.

        Raises ConfigError where a label that has a row for each of the fewest folds is in too few groups or texts.
        """
        task = project.tasks[self.task]  # a fold may lack one of several labels
        most = min(self.rows.in_every_fold if find(self.rows.kind).one_label else (), default=FOLDS[0])
        rows = read_split(project.root, self.task, task.source, self.asked.file.name, declaration_of(task))
        for folds in (count for count in FOLDS if count <= most):
            dev = FoldsConfig.model_construct(folds=folds, repeats=self.seed + MOST_REPEATS)
            try:
                split_dev("", task.model_copy(update={"splits": task.splits.model_copy(update={"dev": dev})}), rows)
                return folds
            except DataError as error:
                code, message = error.code, f"{folds} folds{error.text.partition(chr(10))[0]}"
        grouped = self.asked.group is not None
        option, other = ("--group", "groups, or leave --group out") if grouped else ("--label", "texts")
        raise ConfigError([self.asked.problem(code, option, message, f"label such rows of other {other}")])

    def _prices(self, project: Project, folder: Path, encoder: str, folds: int, trainings: int) -> dict[str, Price]:
        """Return method -> its price. A frozen encoder reads every row once, for all folds (``models/features.py``)."""
        name, count = _seen_from(folder, self.root, encoder), len(self.rows.examples)
        model = project.params.model.model_copy(update={"name": name, "max_length": self.length(encoder)[0]})
        sections = {self.task: (project.shared(self.task), model)}
        priced = replace(project, params=project.params.model_copy(update={"model": model}), sections=sections)
        trained, rows, trials = count * (folds - 1) // folds, list[PlanRow](), dict[str, int]()
        for name in project.methods:
            values, method = self.preset.trials(name, trainings), priced.method(name, self.task)
            if len(values) == 1:  # no choice, but the method's settings
                method, values = priced.tuned(name, self.task, values[0])[0], []
            trials[name] = len(values)
            method = reading(method, trained + self.texts)
            cost = run_cost(priced, method, self.task, values, trained)
            if cost is not None and name not in self.refused:
                rows.append(PlanRow(Cell(name, self.task, "full"), folds, 0, trained, None, cost))
        tokens = [min(length, model.max_length) for length in self.lengths[encoder].tokens]
        mean = sum(tokens) / count
        sizes = {"train": SetSize(trained, mean), "dev": SetSize(count - trained, mean)}
        sizes |= {one.name: SetSize(one.rows, mean) for one in self.elsewhere}
        runs, rounds = estimate(priced, rows, lambda task, encoder: sizes).runs, self.preset.tuning.folds
        labels = max(2, len(self.rows.labels or ()))
        one_model = find(self.rows.kind).one_label or self.rows.labels is None
        models = math.sqrt(labels / 2) if one_model else labels / 2
        solving = {name: solving_seconds(method, count, models) for name, method in priced.methods.items()}
        prices = {}
        for cell, seconds in runs.items():
            name, tried = cell.method, trials[cell.method]
            method = priced.methods[name]
            own = EACH * (1 + rounds * tried) + solving[name] * (1 + rounds * (tried > 0))  # trials share a solved head
            if takes_steps(method):
                averages = all(phase.refit == "mean_of_runs" for phase in method.phases if phase.training.epochs)
                more = seconds * (max(self.preset.refit.get(name, {}).values(), default=1) - 1)
                prices[name] = Price(own + seconds, own if averages else own + seconds, more=more)
            else:
                read = method.encoder(model)
                prices[name] = Price(own, own, seconds, (read.pooling, read.pairs))
        return prices

    def write(self, folder: Path, setup: Setup) -> None:
        """Write the folder for a set-up; over an older one only what a set-up decides."""
        for name in (TASKS, "data"):
            (folder / name).mkdir(parents=True, exist_ok=True)
        for file in self.asked.files:
            shutil.copyfile(file, folder / "data" / file.name)
        write_changed(folder / task_file(self.task), self.task_text(setup))
        linked = [name for name in LINKED if name not in (TASKS, "data")]
        make_folder(self.root, folder, self.params_text(folder, setup), linked)

    def task_text(self, setup: Setup) -> str:
        rows, asked = self.rows, self.asked
        dev = {"folds": setup.folds, "repeats": self.seed + setup.repeats}
        head = f"# Made by `regft fit` from {asked.file.name}: {rows.why.partition(';')[0]}.\n"
        head += f"# {rows.rare_line}.\n" if rows.rare_line else ""
        override = {OVERRIDE: True} if ships(TASKS, self.task) else {}  # a file may have the name of a shipped task
        ood = {"ood": {one.name: one.declared for one in self.elsewhere}} if self.elsewhere else {}
        task = rows.task(asked, asked.file.name, dev)
        if asked.unlabelled is not None:
            task["splits"]["unlabelled"] = asked.unlabelled.name
        return head + yaml_text(override | task | ood)

    def params_text(self, folder: Path, setup: Setup) -> str:
        length, cut = self.length(setup.encoder)
        trials = {name: self.preset.trials(name, setup.trainings) for name in setup.methods}
        settings = {name: self.preset.settings(name, setup.trainings, refit=setup.refit) for name in setup.methods}
        fixed = {name: nested(values) for name, values in settings.items() if values}
        tuned = {name: values if len(values) > 1 else [] for name, values in trials.items()}
        model = {"name": _seen_from(folder, self.root, setup.encoder), "max_length": length, "pooling": "mean"}
        first = self.seed * setup.folds  # another seed is another repeat: folds and draws differ
        seeds = list(range(first, first + setup.folds * setup.repeats))
        trained = len(self.rows.examples) * (setup.folds - 1) // setup.folds
        parts = [trained // part for part in PARTS] if setup.forecast else []
        sections = [
            f"# Made by `regft fit` for {self.minutes:g} minutes: an ordinary project.\n",
            "# Edit it; the same call again, or `dvc repro` here, runs what changed.\n",
            yaml_text({"regft": __version__, "model": model}),
            f"# max_length cuts {cut:.1%} of the rows.\n",
            f"# The validation set of seed s is fold s % {setup.folds} of repeat s // {setup.folds}.\n",
            yaml_text({"grid": {"tasks": [self.task], "sizes": ["full", *reversed(parts)], "seeds": seeds}}),
            yaml_text({"methods": list(setup.methods), "subsample": {"stratified": False}}),
            "# Shared by every method; a method's YAML may override values.\n",
            yaml_text({"training": self.preset.training.model_dump(mode="json", exclude_unset=True)}),
        ]
        if any(tuned.values()):
            sections += [
                "# Chosen by folds of each run's training rows; its validation fold is not read.\n",
                yaml_text({"tuning": {"folds": self.preset.tuning.folds, "methods": tuned}}),
            ]
        execution = self.execution
        if setup.serial:  # no workers
            execution = {name: value for name, value in execution.items() if name != "workers"} | {"executor": "serial"}
        sections += [
            yaml_text({"method_settings": fixed}) if fixed else "",
            yaml_text({"execution": execution, "store": {"path": ".regft"}}),
            "# Differences and costs refer to this method.\n",
            yaml_text({"report": {"reference": self.preset.always[-1], "confidence": 0.95} | self._rule(setup)}),
        ]
        return "".join(sections)

    def _rule(self, setup: Setup) -> dict[str, Any]:
        """Without a preferred method nothing is given up for fewer passes where no method takes steps."""
        if preferred := [name for name in self.preset.prefer if name in setup.methods]:
            chance = round(CHANCE / math.sqrt(len(self.rows.examples)), 1)
            return {"prefer": preferred} | ({} if self.elsewhere else {"tolerance": chance})
        return {} if self.elsewhere or not self._trained.isdisjoint(setup.methods) else {"tolerance": 0.0}

    def described(self, setup: Setup, seconds: float, more: str) -> list[str]:
        """Return lines on the choice: the task, the encoder, the folds, the methods."""
        rows, (length, cut) = self.rows, self.length(setup.encoder)
        counts = listing(f"{label} {count}" for label, count in rows.counts.items())
        rare = f", because '{rows.rarest}' has under a fifth of the rows" if rows.rarest else ""
        warning = unread(self.rows.examples, setup.encoder, self.lengths[setup.encoder])
        lines = [
            *([warning] if warning else []),
            f"rows: {len(rows.examples)}" + (f" ({counts})" if rows.counts else ""),
            f"labels: {rows.kind}: {rows.why}",
            f"metric: {rows.metrics[0]}{rare}; to change it: primary in {task_file(self.task)}",
            *rows.notes,
            f"encoder: {setup.encoder}, {length} tokens of each row (cuts {cut:.1%} of them)",
            f"evaluated on: {setup.folds} folds, {plural(setup.repeats, 'repeat')}: every row by models that did not "
            "see it",
            *(f"out of distribution: {one.name}, {plural(one.rows, 'row')}" for one in self.elsewhere),
            f"methods: {', '.join(setup.methods)}",
        ]
        if tuned := [name for name in setup.methods if len(self.preset.trials(name, setup.trainings)) > 1]:
            tried = plural(setup.trainings, "training")
            lines.append(f"settings of {', '.join(tuned)}: {tried} tried on folds of the rows that train each model")
        lines += [f"left out: {name}: {why}" for name, why in self.refused.items()]
        lines += ["final model: the mean of several trainings on all rows"] if setup.refit else []
        lines += ["forecast for more rows: from runs with a quarter and half of them"] if setup.forecast else []
        late = [name for name in self.preset.methods if name not in setup.methods and name not in self.refused]
        lines += [f"no time for: {', '.join(late)}"] if late else []
        lines += [f"more minutes would buy: {more}"] if more else []
        return [*lines, f"time: about {max(1, round(seconds / 60))} of {self.minutes:g} minutes"]


def _seen_from(folder: Path, root: Path, encoder: str) -> str:
    """Return the name of an encoder of the project at ``root`` as a project in ``folder`` knows it."""
    return encoder if encoder in ALIASES or os.path.isabs(encoder) else os.path.relpath(root / encoder, folder)
