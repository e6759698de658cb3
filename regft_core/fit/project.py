"""An ordinary project folder from one file of rows: ``params.yaml``, the task's YAML, the pipeline files, the rows.

It is made beside its place and renamed, so that it is there complete or not at all. ``fit.json`` says what it was made
from: the same call again finds it as it is, edits included; another call replaces what nobody has edited.
"""

from __future__ import annotations

import io
import os
import shutil
from collections.abc import Mapping, Sequence
from contextlib import redirect_stderr, redirect_stdout
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import Any

import yaml

from regft_core import __version__
from regft_core.data.lengths import STEP, row_lengths
from regft_core.fit.rows import Asked, OwnRows
from regft_core.fit.setup import Chooser, OwnPreset, Setup
from regft_core.grid.data import prepare
from regft_core.grid.lengths import fast_tokenizer
from regft_core.grid.time import estimate
from regft_core.hooks.registry import discover
from regft_core.io.canonical import sha256_file
from regft_core.models.aliases import ALIASES
from regft_core.models.devices import cores
from regft_core.models.source import longest_input, resolve_model
from regft_core.names import plural
from regft_core.runs.project import open_project
from regft_core.schema.encoder import EncoderConfig
from regft_core.schema.execution import ExecutionConfig
from regft_core.settings.checks.compositions import composition_errors
from regft_core.settings.cost import plan_rows
from regft_core.settings.files import TASKS, task_file
from regft_core.settings.laying import nested
from regft_core.settings.preset import LINKED, make_folder, of_the_machine, write_changed
from regft_core.settings.project import Project

#: Rows that ``max_length`` may cut, and tokens that it never exceeds without a word of the user's.
CUT, LONGEST = 0.05, 512
#: Tokens that are kept whatever the rows have: a batch is as long as its longest row, and new texts may be longer.
KEPT = 128

#: Seconds of a run, and of a trial, beside its steps: the encoder is loaded, the result stored.
EACH = 1.0


@dataclass
class Draft:
    """A folder in the making.

    Attributes:
        root: the project whose methods, encoders and pipeline files it takes.
        folder: where it is made.
        minutes: for all of it.
        encoders: names as ``root`` knows them, the strongest first.
        refused: method -> why it cannot act on these rows.
    """

    root: Path
    folder: Path
    asked: Asked
    rows: OwnRows
    preset: OwnPreset
    minutes: float
    encoders: Sequence[str]
    seed: int = 0
    refused: dict[str, str] = field(default_factory=dict)

    @property
    def task(self) -> str:
        """The task's name."""
        return self.asked.task_name

    @cached_property
    def execution(self) -> dict[str, Any]:
        """The section of the user's ``params.yaml``; else a worker for each core."""
        return dict(of_the_machine(self.root).get("execution") or {"executor": "processes", "workers": cores()})

    @cached_property
    def lengths(self) -> dict[str, tuple[int, float]]:
        """Encoder -> tokens that are kept, and the share of the rows that this cuts."""
        found = {}
        for name in self.encoders:
            encoder = EncoderConfig(name=name)
            source = resolve_model(encoder, self.root)
            every = row_lengths(self.rows.examples, fast_tokenizer(source), LONGEST).modes["jointly"].tokens
            most = min(longest_input(source, encoder) or LONGEST, LONGEST)
            ordered = sorted(every)
            wanted = ordered[max(0, int((1 - CUT) * len(ordered) + 0.999) - 1)]
            kept = min(most, max(KEPT, -(-wanted // STEP) * STEP))
            found[name] = kept, sum(length > kept for length in every) / len(every)
        return found

    def chosen(self) -> tuple[Setup, float]:
        """The set-up for the minutes, and its seconds; what it is priced by lies in ``folder`` afterwards.

        Raises ConfigError for minutes that are too few, DataError for rows that cannot be dealt into folds.
        """
        self._find_refused()
        prices: dict[tuple[str, int, int], Mapping[str, float]] = {}

        def priced(encoder: str, folds: int, trainings: int) -> Mapping[str, float]:
            asked = encoder, folds, trainings
            if asked not in prices:
                every = (*self.preset.always, *self.preset.methods)
                self.write(Setup(encoder, folds, self._acting(every), trainings))
                project = open_project(self.folder)
                with redirect_stdout(io.StringIO()), redirect_stderr(io.StringIO()):  # dvc repro says it once more
                    prepare(project)
                prices[asked] = seconds_per_run(project)
            return prices[asked]

        acting = self.preset.model_copy(update={"methods": self._acting(self.preset.methods)})
        bounds = [*self.rows.counts.values(), *([self.rows.groups] if self.rows.groups is not None else [])]
        workers = ExecutionConfig.model_validate(self.execution).workers
        return Chooser(
            acting, priced, self.encoders, len(self.rows.examples), min(bounds, default=None), workers
        ).choose(self.minutes)

    def _acting(self, names: Sequence[str]) -> tuple[str, ...]:
        return tuple(name for name in names if name not in self.refused)

    def _find_refused(self) -> None:
        """Fill ``refused``: methods that cannot act on rows of this kind."""
        self.write(Setup(self.encoders[0], 3, (*self.preset.always, *self.preset.methods)))
        project = open_project(self.folder, check_composition=False)
        task = project.tasks[self.task]
        for name, method in project.methods.items():
            if problems := composition_errors(project.builder.registry, method, task, project.params, project.tasks):
                self.refused[name] = problems[0]

    # -------------------------------------------------------------------------------- files

    def write(self, setup: Setup) -> None:
        """Write the folder for a set-up."""
        for folder in (TASKS, "data"):
            (self.folder / folder).mkdir(parents=True, exist_ok=True)
        copy = self.folder / "data" / self.asked.file.name
        if not copy.is_file() or sha256_file(copy) != sha256_file(self.asked.file):
            shutil.copyfile(self.asked.file, copy)
        write_changed(self.folder / task_file(self.task), self.task_text(setup))
        linked = [file for file in LINKED if file not in (TASKS, "data")]
        make_folder(self.root, self.folder, self.params_text(setup), linked)

    def task_text(self, setup: Setup) -> str:
        """The task's YAML."""
        rows, asked = self.rows, self.asked
        dev = {"folds": setup.folds, "repeats": self.seed + setup.repeats}
        head = f"# Made by `regft fit` from {asked.file.name}: {rows.why.partition(';')[0]}.\n"
        return head + _yaml(rows.task(asked, asked.file.name, dev))

    def params_text(self, setup: Setup) -> str:
        """``params.yaml``."""
        length, cut = self.lengths[setup.encoder]
        name = setup.encoder
        if name not in ALIASES and not os.path.isabs(name):
            name = os.path.relpath(self.root / name, self.folder)
        trials = self.preset.trials(setup.methods, setup.trainings)
        fixed = self.preset.fixed(setup.methods, setup.trainings)
        first = self.seed * setup.folds  # another seed is another repeat: folds and draws differ
        tuned = any(trials.values())
        sections = [
            f"# Made by `regft fit` for {self.minutes:g} minutes: an ordinary project.\n",
            "# Edit it; the same call again, or `dvc repro` here, runs what changed.\n",
            _yaml({"regft": __version__, "model": {"name": name, "max_length": length, "pooling": "mean"}}),
            f"# max_length cuts {cut:.1%} of the rows.\n",
            f"# Seed s is judged on fold s % {setup.folds} of repeat s // {setup.folds}.\n",
            _yaml({"grid": {"tasks": [self.task], "sizes": ["full"], "seeds": [first + seed for seed in setup.seeds]}}),
            _yaml({"methods": list(setup.methods)}),
            _yaml({"subsample": {"stratified": False}}),
            "# Shared by every method; a method's YAML may override values.\n",
            _yaml({"training": self.preset.training.model_dump(mode="json", exclude_unset=True)}),
            "# Chosen by folds of each run's training rows; rows that judge are not read.\n" if tuned else "",
            _yaml({"tuning": {"folds": self.preset.tuning.folds, "methods": trials}}) if tuned else "",
            _yaml({"method_settings": {name: nested(values) for name, values in fixed.items()}}) if fixed else "",
            _yaml({"execution": self.execution, "store": {"path": ".regft"}}),
            "# Differences and costs refer to this method.\n",
            _yaml({"report": {"reference": self.preset.always[-1], "confidence": 0.95}}),
        ]
        return "".join(sections)


def seconds_per_run(project: Project) -> dict[str, float]:
    """Method -> seconds of one worker for one run, with its trials, of a project with one task and one size."""
    tuning = project.params.tuning
    rounds = 1 if tuning is None else tuning.rounds
    runs = estimate(project, plan_rows(project, discover())).runs
    return {
        cell.method: seconds + EACH * (1 + rounds * len(project.trials(cell.method))) for cell, seconds in runs.items()
    }


def _yaml(data: Mapping[str, Any]) -> str:
    return yaml.safe_dump(dict(data), sort_keys=False, allow_unicode=True, default_flow_style=None, width=110)


def described(draft: Draft, setup: Setup, seconds: float) -> list[str]:
    """Lines on the choice: the task, the encoder, the folds, the methods."""
    rows = draft.rows
    length, cut = draft.lengths[setup.encoder]
    counts = ", ".join(f"{label} {count}" for label, count in list(rows.counts.items())[:10])
    lines = [
        f"rows: {len(rows.examples)}" + (f" ({counts})" if counts else ""),
        f"labels: {rows.kind}: {rows.why}",
        f"metric: {rows.metrics[0]}"
        + (f", because '{rows.rare}' has under a fifth of the rows" if rows.rare else "")
        + f"; to change it: primary in {task_file(draft.task)}",
    ]
    if rows.without_label or rows.without_text:
        lines.append(f"left out: {rows.without_label} rows without a label, {rows.without_text} without a text")
    lines += [
        f"encoder: {setup.encoder}, {length} tokens of each row (cuts {cut:.1%} of them)",
        f"judged by: {setup.folds} folds, {plural(setup.repeats, 'repeat')}: every row by models that did not see it",
        f"methods: {', '.join(setup.methods)}",
    ]
    tuned = [name for name, trials in draft.preset.trials(setup.methods, setup.trainings).items() if trials]
    if tuned:
        tried = plural(setup.trainings, "training")
        lines.append(f"settings of {', '.join(tuned)}: {tried} tried on folds of the rows that train each model")
    lines += [f"left out: {name}: {why}" for name, why in draft.refused.items()]
    late = [name for name in draft.preset.methods if name not in setup.methods and name not in draft.refused]
    if late:
        lines.append(f"no time for: {', '.join(late)}; give more --minutes")
    return [*lines, f"time: about {max(1, round(seconds / 60))} of {draft.minutes:g} minutes"]
