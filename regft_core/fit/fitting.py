"""From one file of labelled rows to a model: a project folder, its runs, the decision, the model of all rows."""

from __future__ import annotations

import os
import signal
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, NoReturn

from regft_core import metrics
from regft_core.disk.reading import read_json
from regft_core.errors import ConfigError, Problem, RunFailed
from regft_core.fit.draft import Draft
from regft_core.fit.folder import RECORD, leave_out, make_folder_once, refusal
from regft_core.fit.own_rows import Asked, count_unlabelled, read_elsewhere, read_own
from regft_core.fit.setup import FOLDS, OwnPreset, Setup, encoders_here, read_preset
from regft_core.grid.cell_keys import cached_seeds
from regft_core.grid.compute import compute_only
from regft_core.grid.executors.processes import staying
from regft_core.grid.refit import refit
from regft_core.grid.repro import variables
from regft_core.models.devices import SWITCH
from regft_core.models.fetch import ALIASES
from regft_core.names import plural
from regft_core.runs.code import package_root
from regft_core.runs.work import Work
from regft_core.schema.tasks import FoldsConfig
from regft_core.serve.export import export
from regft_core.settings.project import Cell, cells
from regft_core.settings.read_project import open_project
from regft_core.settings.yaml_paths import RESULTS

#: Where projects are made without a folder.
FOLDER = "fits"
#: Nothing runs longer than so many times ``minutes``.
LIMIT = 1.2
#: Seconds until the alarm rings again: Python drops what is raised in the callback of a weak reference.
AGAIN = 5.0


class OutOfTime(BaseException):
    """The time of a call is over; no ``except Exception`` takes it for a run's failure."""


@dataclass(frozen=True)
class Wanted:
    """A call: which rows, how long it may take, with which encoder, into which folder.

    Attributes:
        here: the working directory; its project is used, else the checkout of this code, else what the package ships.
        folder: relative to ``here``; ``fits/NAME OF THE FILE`` when absent.
        minutes: for all of it on this machine; they choose encoder, methods and trials.
        model: an alias or a directory; the strongest that fits when absent.
        seed: another number splits into other folds.
        began: when the call began, by ``time.monotonic``, where a process was started for it.
    """

    here: Path
    asked: Asked
    folder: str | None = None
    minutes: float = 30.0
    model: str | None = None
    seed: int = 0
    began: float | None = None

    @property
    def place(self) -> Path:
        return self.here / (self.folder or f"{FOLDER}/{self.asked.file.name.split('.')[0]}")

    @property
    def root(self) -> Path:
        """The project whose methods, encoders and run store are used."""
        code = package_root()
        is_checkout = (code / "pyproject.toml").is_file()
        return code if not (self.here / "params.yaml").is_file() and is_checkout else self.here

    @property
    def encoder(self) -> str | None:
        """``model`` as ``root`` knows it."""
        folder = self.here / (self.model or "")
        is_elsewhere = self.root != self.here and self.model and self.model not in ALIASES and folder.is_dir()
        return os.path.abspath(folder) if is_elsewhere else self.model


def draft_of(wanted: Wanted) -> Draft:
    """Return the project of a call. Raises ConfigError with all that is wrong, before anything is written."""
    rows, problems = read_own(wanted.asked)
    elsewhere, wrong = read_elsewhere(wanted.asked, rows) if rows is not None else ([], [])
    texts, unread = count_unlabelled(wanted.asked)
    problems += [*wrong, *unread]
    encoders, missing = encoders_here(wanted.root, wanted.encoder)
    problems += missing
    if not 0 < wanted.minutes < float("inf"):
        message = f"{wanted.minutes:g} is not a number of minutes above 0"
        problems.append(Problem("wrong-minutes", "--minutes", 0, "", message, "give for instance --minutes 30"))
    if not 0 <= wanted.seed < 99:  # it is a repeat of the folds; the next may be run, too, and a task has 100
        problems.append(Problem("wrong-seed", "--seed", 0, "", f"{wanted.seed} has no folds", "give one of 0 to 98"))
    if refused := refusal(wanted.place, wanted.asked.file):
        problems.append(refused)
    if problems or rows is None:
        raise ConfigError(problems)
    root, preset = wanted.root, read_preset(wanted.root)
    preset = preset if wanted.asked.unlabelled is None else preset.with_texts()
    return Draft(root, wanted.asked, rows, preset, wanted.minutes, encoders, wanted.seed, elsewhere, texts)


@dataclass(frozen=True)
class Taken:
    """The method that was decided for, what is expected of it, its exported model, and methods without time to run."""

    method: str
    decision: dict[str, Any]
    path: Path
    not_run: tuple[str, ...] = ()


def fit_rows(wanted: Wanted, run: Callable[[Path], None], say: Callable[[str], None] = print) -> Taken:
    """Compare methods on the rows, decide, train the final model on all of them and export it.

    Args:
        run: does what is stale in a folder; raises or exits where it fails.

    Raises ConfigError, DataError, ModelError, RunFailed. A call that was interrupted goes on when it is repeated, and
    one that was out of time when it is repeated with more minutes.
    """
    place, limit = wanted.place, (wanted.began or time.monotonic()) + 60 * LIMIT * wanted.minutes
    # As the command multiplies, whichever process calls: the same bits (models/devices.py).
    with variables({SWITCH: os.environ.get(SWITCH) or "1"}):
        # Not stopped: it refuses too few minutes with the number that is needed.
        say("\n".join(make_folder_once(draft_of(wanted), place)))
        record = read_json(place / RECORD)
        try:
            with staying(), _until(limit):
                _compare(place, record["task"], read_preset(wanted.root), limit - record.get("reserve", 0), say)
                run(place)
                method, decision = decided(place, record["task"])
                say(f"taken: {method}")
                path = export(refit(place, method, record["task"], "full", say=say))
        except OutOfTime:
            message = f"{place}: not done within {LIMIT:g} times {wanted.minutes:g} minutes; what finished is kept"
            hint = "call it again: it goes on; or with more --minutes"
            raise RunFailed("out-of-time", f"{message}\n    -> {hint}") from None
    return Taken(method, decision, path, open_project(place).params.report.not_run)


def _compare(folder: Path, task: str, preset: OwnPreset, end: float, say: Callable[[str], None]) -> None:
    """Run the methods that are always compared together, then the others in their order until ``end``.

    A method that has not all its runs by ``end`` of ``time.monotonic`` is left out of ``params.yaml``, and so are those
    after it. Its finished runs stay in the run store. A first tuned method says more than a second repeat of the folds:
    where it has the runs of the first, all methods are compared by that one.
    """
    methods = open_project(folder).methods
    done, began = list[str](), time.monotonic()

    def compare(group: list[str]) -> None:
        compute_only(folder, "evaluate", group, lambda line: say(line) if "FAILED" in line else None)
        done.extend(group)
        for name in group:
            say(f"{name}: {_score(folder, name, task)} ({time.monotonic() - began:.0f} s)")

    if first := [name for name in methods if name in preset.always]:  # a person may have taken them all out
        compare(first)
    try:
        with _until(end):
            for name in methods:
                if name not in done:
                    compare([name])
    except OutOfTime:
        if not (late := [name for name in methods if name not in done]):  # it rang after the last one
            return
        seeds = _first_repeat(folder, task, late[0]) if preset.tuning.methods.keys().isdisjoint(done) else ()
        kept, late = (late[:1], late[1:]) if seeds else ([], late)
        missed = ", ".join(leave_out(folder, late, seeds))
        say(f"not run, for the minutes are over: {missed}; more minutes go on from there")
        if kept:
            compare(kept)


def _first_repeat(folder: Path, task: str, method: str) -> Sequence[int]:
    """The seeds of the first of several repeats of the folds, where a method has its runs; else none."""
    project = open_project(folder)
    seeds, dev = project.params.grid.seeds, project.tasks[task].splits.dev
    if not isinstance(dev, FoldsConfig) or len(seeds) <= dev.folds:
        return ()
    first = seeds[: dev.folds]
    there = [cached_seeds(project, cell) for cell in cells(project) if cell.method == method]
    return first if all(one.issuperset(first) for one in there) else ()


def _score(folder: Path, method: str, task: str) -> str:
    work, cell = Work(folder), Cell(method, task, "full")
    if not work.result_file("evaluate", cell).is_file():
        return "failed"
    result = work.evaluation(cell)
    scores = [run.sets["dev"].metrics[result.primary] for run in result.runs if "dev" in run.sets]
    mean = metrics.find(result.primary).factor * sum(scores) / max(1, len(scores))
    return f"{result.primary} {mean:.1f}, mean of {plural(len(scores), 'run')}"


@contextmanager
def _until(moment: float) -> Iterator[None]:
    """Raise OutOfTime inside the block at a ``moment`` of ``time.monotonic``; in a thread beside the main one never."""
    if threading.current_thread() is not threading.main_thread():
        yield
        return

    def ring(*_: Any) -> NoReturn:
        raise OutOfTime

    outer, (left, again) = signal.signal(signal.SIGALRM, ring), signal.getitimer(signal.ITIMER_REAL)
    began = time.monotonic()
    try:
        signal.setitimer(signal.ITIMER_REAL, max(moment - began, 1e-3), AGAIN)
        yield
    finally:
        signal.signal(signal.SIGALRM, outer)
        signal.setitimer(signal.ITIMER_REAL, max(left - (time.monotonic() - began), 1e-3) if left else 0.0, again)


def fit_method(wanted: Wanted, method: str) -> Path:
    """Train one method on all rows and export it; nothing is compared, and nothing is known of its score.

    Its settings are those that ``fit_rows`` tries first.

    Raises ConfigError, DataError, ModelError, RunFailed.
    """
    draft = draft_of(wanted)
    first = [trials[:1] for trials in draft.preset.tuning.methods.get(method, [])[:1]]
    tuning = draft.preset.tuning.model_copy(update={"methods": {method: first}})
    draft = replace(draft, preset=draft.preset.model_copy(update={"tuning": tuning}))
    draft.execution = {"device": draft.execution.get("device", "auto")}  # one run, in this process
    wanted.place.mkdir(parents=True, exist_ok=True)
    draft.write(wanted.place, Setup(draft.encoders[0], FOLDS[-1], tuple(dict.fromkeys((*draft.preset.always, method)))))
    return export(refit(wanted.place, method, draft.task, "full", judged=False, say=lambda _: None))


def decided(folder: Path, task: str) -> tuple[str, dict[str, Any]]:
    """Return the method that the report takes, and what it expects.

    Raises RunFailed where no method is expected to be better than a constant answer, or none finished every seed.
    """
    results: dict[str, Any] = read_json(folder / RESULTS)
    decisions = {name: one["decision"] for name, one in results[f"{task}-full"].items() if "decision" in one}
    taken = next((name for name, one in decisions.items() if one.get("taken")), None)
    if taken is None:
        raise RunFailed("nothing-to-take", f"{folder}: no method finished every seed; see reports/report.html")
    losses: dict[bool, dict[str, float]] = {True: {}, False: {}}  # of methods that read the text, and of constants
    for name, one in decisions.items():
        reads = Work(folder).finetune(Cell(name, task, "full")).reads_text
        losses[reads][name] = float(one["expected_loss"])
    constant = min(losses[False], key=losses[False].__getitem__, default=None)
    if constant is None or (taken in losses[True] and min(losses[True].values()) < losses[False][constant]):
        return taken, decisions[taken]
    message = f"no method is better than {constant}, a constant answer; no model was exported"
    hint = f"label more rows, or correct their labels; scores: {folder}/reports/report.html"
    raise RunFailed("constant-answer", f"{folder}: {message}\n    -> {hint}")
