"""What the schema cannot say about tasks: files that exist, metrics that fit, labels that agree."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from pydantic import BaseModel

from regft_core import metrics
from regft_core.config.check_ood import check_ood
from regft_core.config.check_params import moves, revision_problem
from regft_core.config.explain import validate
from regft_core.config.names import nearest, suggestion
from regft_core.config.schema import BuiltinSource, FilesSource, HubSource, TaskConfig
from regft_core.config.yamlio import Document, KeyPath
from regft_core.errors import Problem

FORMATS = (".csv", ".tsv", ".jsonl", ".parquet")
#: Names that evaluation already uses for the task's own sets.
RESERVED_SETS = ("train", "dev")

Source = HubSource | FilesSource | BuiltinSource
#: A split that is read, and the place that names it.
Use = tuple[Document, KeyPath, str | None]


@dataclass(frozen=True)
class Builtin:
    """What built-in datasets accept: the model of their options and their split names."""

    options: type[BaseModel]
    splits: Sequence[str]


def referenced_tasks(document: Document) -> Iterator[str]:
    """Names of the tasks that a task's YAML is judged on, also when the rest of it is wrong."""
    ood = document.data.get("ood")
    for name, entry in ood.items() if isinstance(ood, dict) else ():
        if isinstance(name, str) and name not in RESERVED_SETS and isinstance(entry, dict) and "source" not in entry:
            yield name


def check_task(
    root: Path,
    name: str,
    tasks: Mapping[str, TaskConfig],
    document: Document,
    documents: Mapping[str, Document],
    builtin: Builtin | None,
    warnings: list[str],
) -> list[Problem]:
    """Problems of a task of the grid, and of everything that judges it.

    ``documents`` holds the files read so far; ``warnings`` is added to.
    """
    task = tasks[name]
    problems = [*_check_metrics(task, document), *_check_labels(task, document)]
    if task.splits.train is None:
        hint = "add splits.train, or take the task out of grid.tasks"
        problems.append(document.problem(("splits",), "'train' is missing: this set can only judge others", hint))
    used: list[Use] = [(document, ("splits", key), getattr(task.splits, key)) for key in ("train", "dev")]
    checker = _Sources(root, builtin, warnings)
    problems += checker.check(task.kind, task.source, document, ("source",), used)
    for ood, config in task.ood.items():
        path: KeyPath = ("ood", ood)
        if ood in RESERVED_SETS:
            message = f"'{ood}' is the name of the task's own set"
            problems.append(document.problem(path, message, "give the out-of-distribution set another name"))
            continue
        use: Use = (document, (*path, "split"), config.split)
        if config.source is not None:
            problems += checker.check(task.kind, config.source, document, (*path, "source"), [use])
        elif ood in tasks:
            other, place = tasks[ood], documents[f"pipelines/tasks/{ood}.yaml"]
            if config.split is None:
                use = (place, ("splits", "dev"), other.splits.dev)
            problems += _check_labels(other, place)
            problems += checker.check(other.kind, other.source, place, ("source",), [use])
        problems += check_ood(ood, task, tasks, document)
    return problems


def _check_metrics(task: TaskConfig, document: Document) -> list[Problem]:
    right = metrics.names(task.kind)
    other = tuple(name for name in metrics.names() if name not in right)
    problems = []
    for i, metric in enumerate(task.metrics):
        path = ("metrics", i)
        if metric in other:
            hint = f"allowed for {task.kind}: {', '.join(right)}"
            problems.append(document.problem(path, f"'{metric}' does not fit kind: {task.kind}", hint))
        elif metric not in right:
            hint = suggestion(metric, right, f"allowed for {task.kind}")
            problems.append(document.problem(path, f"unknown metric '{metric}'", hint))
        elif metric in task.metrics[:i]:
            problems.append(document.problem(path, f"'{metric}' is listed twice", "keep one of them"))
    return problems


def _check_labels(task: TaskConfig, document: Document) -> list[Problem]:
    problems = []
    for value, label in (task.label_values or {}).items():
        if label not in (task.labels or ()):
            path = ("label_values", value)
            hint = suggestion(label, task.labels or (), "labels")
            problems.append(document.problem(path, f"'{label}' is not one of labels", hint))
    if task.range is not None:
        if task.kind == "classification":
            problems.append(document.problem(("range",), "a classification task has no range", "remove it"))
        elif task.range[0] >= task.range[1]:
            message = f"is [{task.range[0]:g}, {task.range[1]:g}]; the smallest value comes first"
            problems.append(document.problem(("range",), message, "write [smallest, largest]"))
    if task.keyword_segment == "text_pair" and task.columns.text_pair is None:
        message = "is text_pair, but columns.text_pair is missing"
        problems.append(document.problem(("keyword_segment",), message, "say text, or add the column"))
    return problems


@dataclass
class _Sources:
    """Checks sources together with the splits that are read from them."""

    root: Path
    builtin: Builtin | None
    warnings: list[str]

    def check(self, kind: str, source: Source, document: Document, path: KeyPath, uses: list[Use]) -> list[Problem]:
        """Problems of the ``source`` at ``path`` of ``document``."""
        if isinstance(source, FilesSource):
            found = [(use, _file_problem(self.root, use[2])) for use in uses if use[2] is not None]
            return [place.problem(at, *problem) for (place, at, _), problem in found if problem is not None]
        if isinstance(source, HubSource):
            return self._check_hub(source, document, (*path, "revision"))
        problems = []
        if (source.generator == "cue_regression") != (kind == "regression"):
            needed = "regression" if source.generator == "cue_regression" else "classification"
            message = f"'{source.generator}' makes a {needed} task, but this one has kind: {kind}"
            problems.append(document.problem((*path, "generator"), message, "change kind or generator"))
        if self.builtin is None:
            return problems
        if "options" in source.model_fields_set:
            problems += validate(self.builtin.options, document, (*path, "options"))[1]
        for place, at, split in uses:
            if split is not None and split not in self.builtin.splits:
                hint = suggestion(split, self.builtin.splits, "built-in tasks have")
                problems.append(place.problem(at, f"unknown split '{split}'", hint))
        return problems

    def _check_hub(self, source: HubSource, document: Document, at: KeyPath) -> list[Problem]:
        if problem := revision_problem(source.revision):
            return [document.problem(at, problem, "give the commit (40 hex digits) of the dataset")]
        if moves(source.revision):
            where = f"{document.file}:{document.line(at)}"
            warning = f"{where}: revision '{source.revision}' of {source.id} can move; pin the commit"
            if warning not in self.warnings:
                self.warnings.append(warning)
        return []


def _file_problem(root: Path, split: str) -> tuple[str, str] | None:
    """(message, hint) when ``split`` is not a readable data file below ``data/``."""
    folder = root / "data"
    parts = Path(split).parts[1:] if Path(split).parts[:1] == ("data",) else Path(split).parts
    inside = "copy the file below data/ and give its path from there"
    if Path(split).is_absolute() or split.startswith("~"):
        return f"'{split}' is not a path below data/", inside
    if ".." in parts or "\\" in split or "\0" in split:
        return f"'{split}' leaves data/", inside
    relative = Path(*parts)
    if not _known_format(relative.name):
        return f"'{split}' has an unknown format", f"the name ends in one of {', '.join(FORMATS)}, or that and .gz"
    path = folder / relative
    # DVC may link tracked files into its cache; a link to anywhere else would escape its watch.
    homes = (folder.resolve(), (root / ".dvc" / "cache").resolve())
    if path.is_file() and not any(path.resolve().is_relative_to(home) for home in homes):
        return f"'{split}' is a link that leaves data/ (to {path.resolve()})", inside
    if not path.is_file():
        present = sorted(p.relative_to(folder).as_posix() for p in folder.rglob("*") if _known_format(p.name))
        near = nearest(relative.as_posix(), present)
        hint = f"did you mean '{near}'?" if near else "put the file there"
        return f"there is no file data/{relative.as_posix()}", hint
    return None


def _known_format(name: str) -> bool:
    return name.lower().removesuffix(".gz").endswith(FORMATS)
