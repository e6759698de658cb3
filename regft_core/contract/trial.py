"""A project with a tiny encoder and a few generated rows of every kind of task, in which one regulariser is tried."""

from __future__ import annotations

import csv
import io
import shutil
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, redirect_stderr, redirect_stdout
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from regft_core import shipped
from regft_core.catalogue import OWN
from regft_core.contract.tiny import WORDS, tiny_encoder
from regft_core.disk.files import write_text
from regft_core.errors import ConfigError
from regft_core.grid.data import prepare
from regft_core.grid.keys import write_plan
from regft_core.hooks.registry import discover
from regft_core.runs.job import Job
from regft_core.runs.project import open_project
from regft_core.settings.checks.methods import composition_errors
from regft_core.settings.derived import changes_of, regularisers_of
from regft_core.settings.files import METHODS, find, method_file, names_in, read, task_file
from regft_core.settings.preset import link
from regft_core.settings.run_config import yaml_text

SIZE = 16
ROWS = {"train": 32, "dev": 16}
#: Four, so that a method that treats some layers in another way has both sorts.
LAYERS = 4
_POLARITY = {"labels": ["bad", "good"], "metrics": ["accuracy"]}
_PROMPT = {"words": {"bad": "bad", "good": "good"}}
#: Task -> its YAML, but for where the rows are.
TASKS: dict[str, dict[str, Any]] = {
    "text": {
        "columns": {"text": "text", "label": "polarity"},
        "prompt": {"template": "{text} it was [MASK] .", **_PROMPT},
        **_POLARITY,
    },
    "pair": {
        "columns": {"text": "text", "text_pair": "other", "label": "polarity"},
        "prompt": {"template": "{text} [MASK] , {text_pair}", **_PROMPT},
        **_POLARITY,
    },
    "multi_label": {
        "kind": "multi_label",
        "columns": {"text": "text", "label": "topics"},
        "labels": ["film", "food", "music"],
        "metrics": ["f1_macro"],
    },
    "ordinal": {
        "kind": "ordinal",
        "columns": {"text": "text", "label": "grade"},
        "labels": ["poor", "slow", "great"],
        "metrics": ["kappa_quadratic"],
    },
    "regression": {
        "kind": "regression",
        "columns": {"text": "text", "text_pair": "other", "label": "score"},
        "range": [0, 5],
        "metrics": ["pearson"],
    },
}


@dataclass(frozen=True)
class Trial:
    """A project at ``root`` with a ``method`` that has the regulariser, on ``tasks`` that it fits.

    Attributes:
        listed: whether the method has the regulariser in a phase; false where a file of its name leaves it out.
        controls: methods that differ from it by one ingredient of the regulariser.
    """

    root: Path
    method: str
    tasks: tuple[str, ...] = ()
    controls: tuple[str, ...] = ()
    listed: bool = True


def trial_of(root: Path, folder: Path, name: str) -> Trial:
    """Write a project to ``folder`` in which the regulariser ``name`` acts; own code and methods are those of ``root``.

    Raises ConfigError: it acts in no method, or on no kind of task.
    """
    encoder = _base(root, folder)
    if (root / METHODS).is_dir():
        shutil.copytree(root / METHODS, folder / METHODS)
    wrong: ConfigError | None = None
    for method in _methods(folder, name):
        try:
            trial = _laid_out(folder, method, name, encoder)
        except ConfigError as error:
            wrong = wrong or error
            continue
        if trial.tasks or not trial.listed:
            return trial
    assert wrong is not None
    raise wrong


def plain_trial(root: Path, folder: Path, tasks: Sequence[str], **settings: Any) -> Trial:
    """Write a project with plain fine-tuning and further ``settings`` of ``params.yaml``; raises ConfigError."""
    _write_params(folder, _base(root, folder), tasks, ["vanilla"], **settings)
    open_project(folder)
    return Trial(folder, "vanilla", tuple(tasks))


def ready(trial: Trial) -> None:
    """Prepare the rows and write the plan, unless that is done."""
    if not (trial.root / "work" / "plan").is_dir():
        prepare(open_project(trial.root))
        write_plan(open_project(trial.root))


def job_of(trial: Trial, method: str, task: str) -> Job:
    """The run of a method on a task."""
    return Job(str(trial.root), method, task, str(SIZE), 0)


@contextmanager
def quiet() -> Iterator[None]:
    """Print nothing within the block: warnings about generated rows help nobody."""
    with redirect_stdout(io.StringIO()), redirect_stderr(io.StringIO()):
        yield


def _base(root: Path, folder: Path) -> Path:
    """Write rows, tasks and the encoder, with the own code of ``root``; returns the encoder's folder."""
    for own in OWN:
        link(folder / own, (root / own).resolve())
    for split, count in ROWS.items():
        _write_rows(folder / "data" / f"{split}.csv", count, first=ROWS["train"] * (split == "dev"))
    for task, declared in TASKS.items():
        rows = {"source": {"kind": "files"}, "splits": {"train": "train.csv", "dev": "dev.csv"}}
        _write(folder / task_file(task), {**rows, **declared, "primary": declared["metrics"][0]})
    return tiny_encoder(folder, LAYERS)


def _methods(folder: Path, name: str) -> Iterator[str]:
    """Methods that may have the regulariser: the one of its name; it alone; the project's others; those shipped."""
    own = names_in(folder / METHODS)
    if find(folder, METHODS, name) is not None:
        yield name
        return
    _write(folder / method_file(name), {"regularisers": {name: {}}, "training": {}})
    yield name
    documents = {other: read(folder, METHODS, other) for other in (*own, *names_in(shipped.FOLDER / METHODS))}
    having = [(other, _options(found.data, name)) for other, found in documents.items() if found is not None]
    # That with the fewest options of its own: the nearest to the method as it is.
    yield from (other for other, options in sorted(having, key=lambda pair: len(pair[1])) if options)


def _options(data: Mapping[str, Any], name: str) -> list[str]:
    """The options that a method sets of the regulariser, and a name for each phase that has it."""
    parts = [(phase, part[name]) for phase, part in regularisers_of(data) if name in part]
    return [text for phase, options in parts for text in (phase, *(options or ()))]


def _laid_out(folder: Path, method: str, name: str, encoder: Path) -> Trial:
    """The trial with one method, on all tasks that it and its controls fit; raises ConfigError where there is none."""
    document = read(folder, METHODS, method)
    assert document is not None
    registry = discover()
    changes = changes_of(document.data, (), registry)
    ends = [end for end, change in changes.items() if change.plain is None and _options(change.values, name)]
    controls = tuple(f"{method}_{end}" for end in ends)
    _write_params(folder, encoder, [*TASKS], [method, *controls])
    project = open_project(folder, check_composition=False)
    if not any(name in dict(phase.regularisers) for phase in project.methods[method].phases):
        return Trial(folder, method, listed=False)

    def fits(task: str) -> bool:
        config, sections, tasks = project.tasks[task], project.sections[task], project.tasks
        return not any(
            composition_errors(project.builder, project.methods[one], config, sections, tasks)
            for one in (method, *controls)
        )

    tasks = tuple(filter(fits, TASKS))
    _write_params(folder, encoder, tasks or [*TASKS], [method, *controls])
    open_project(folder)
    return Trial(folder, method, tasks, controls)


def _write_params(folder: Path, encoder: Path, tasks: Sequence[str], methods: list[str], **more: Any) -> None:
    settings = {
        **more,
        "model": {"name": str(encoder.resolve()), "max_length": 32},
        "grid": {"tasks": list(tasks), "sizes": [SIZE], "seeds": [0]},
        "methods": methods,
        "subsample": {},
        "training": {"max_steps": 6, "epochs": 2, "batch_size": 4, "learning_rate": 1.0e-3},
        "execution": {"executor": "serial", "device": "cpu"},
        "report": {"reference": methods[0]},
    }
    _write(folder / "params.yaml", settings)


def _write(path: Path, data: Mapping[str, Any]) -> None:
    write_text(path, yaml_text(data))


def _write_rows(path: Path, count: int, first: int) -> None:
    """Rows of texts of 4 to 12 words; their labels of every kind depend on the words."""
    words = WORDS.split()
    path.parent.mkdir(parents=True, exist_ok=True)
    with path.open("w", newline="", encoding="utf-8") as file:
        rows = csv.writer(file)
        rows.writerow(["text", "other", "polarity", "topics", "grade", "score"])
        for number in range(first, first + count):
            drawn = [words[(7 * number + (3 + number % 5) * place) % len(words)] for place in range(3 + number % 9)]
            level = number % 3
            topics = ["film", "food", "music"][: 1 + level] if number % 2 else ["music"]
            polarity, grade = ("bad", "good")[number % 2], ("poor", "slow", "great")[level]
            text = " ".join([polarity, grade, *drawn])
            other = " ".join([*reversed(drawn[:4]), polarity])
            rows.writerow([text, other, polarity, ";".join(topics), grade, level + number % 2])
