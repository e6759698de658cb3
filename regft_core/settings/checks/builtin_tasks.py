"""Checks on built-in tasks: a YAML may describe the generated rows, but it cannot change them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from pydantic import BaseModel, ValidationError

from regft_core.errors import Problem
from regft_core.names import listing, suggestion
from regft_core.schema.tasks import BuiltinSource, ColumnsConfig, OodConfig, TaskConfig
from regft_core.settings.messages.explain import validate
from regft_core.settings.yaml.document import Document, KeyPath

#: Labels of each generator by class index; those without make regression targets.
LABELS: Mapping[str, tuple[str, ...]] = {"cue_sentence": ("negative", "positive"), "cue_pair": ("different", "same")}
#: Smallest and largest target of each generator without labels.
RANGES: Mapping[str, tuple[float, float]] = {"cue_regression": (0.0, 5.0)}
COLUMNS: Mapping[str, tuple[str, ...]] = {
    "cue_sentence": ("text", "label"),
    "cue_pair": ("text", "text_pair", "label"),
    "cue_regression": ("text", "text_pair", "label"),
}
#: Keys that say how raw values are read; generated rows have none.
_UNUSED = ("label_values", "drop_labels", "drop_empty")


@dataclass(frozen=True)
class Builtin:
    """What built-in datasets accept: the model of their options and their split names."""

    options: type[BaseModel]
    splits: Sequence[str]

    def rows(self, source: BuiltinSource, split: str) -> int | None:
        """Rows of a split; None for wrong options or an unknown split."""
        if split not in self.splits:
            return None
        try:
            options: Any = self.options.model_validate(source.options)
        except ValidationError:
            return None
        return int(getattr(options.rows, split))


def check_options(builtin: Builtin, source: BuiltinSource, document: Document, path: KeyPath) -> list[Problem]:
    """Problems of the options of the ``source`` at ``path``."""
    if "options" not in source.model_fields_set:
        return []
    return validate(builtin.options, document, (*path, "options"))[1]


def check_kind(kind: str | None, source: BuiltinSource, document: Document, path: KeyPath) -> list[Problem]:
    """Whether the generator of the ``source`` at ``path`` makes tasks of ``kind`` (None: unknown)."""
    needed = "classification" if source.generator in LABELS else "regression"
    if kind in (None, needed):
        return []
    message = f"'{source.generator}' makes a {needed} task, but this one has kind: {kind}"
    return [document.problem("generator-kind", (*path, "generator"), message, "change kind or generator")]


def check_declared(
    source: BuiltinSource,
    config: TaskConfig | OodConfig,
    labels: tuple[str, ...] | None,
    document: Document,
    path: KeyPath,
) -> list[Problem]:
    """Problems of what a task or an in-place set, at ``path``, says of generated rows.

    ``labels`` are those in force, which an in-place set may have from its task; None when unknown.
    """
    generator, problems = source.generator, []
    own = LABELS.get(generator)
    if own is not None and labels not in (None, own):
        message = f"'{generator}' has the labels {listing(own)}, in this order"
        problems.append(
            document.problem("generator-labels", (*path, "labels"), message, f"write labels: [{', '.join(own)}]")
        )
    targets = RANGES.get(generator)
    if targets is not None and isinstance(config, TaskConfig) and config.known("range") and config.range is not None:
        low, high = config.range
        if low < high and not low <= targets[0] <= targets[1] <= high:
            message = f"'{generator}' has targets from {targets[0]:g} to {targets[1]:g}"
            hint = f"write range: [{targets[0]:g}, {targets[1]:g}]"
            problems.append(document.problem("generator-range", (*path, "range"), message, hint))
    for key in _UNUSED:
        if key in config.model_fields_set:
            message = f"'{key}' does nothing here: the rows of '{generator}' are generated as they are"
            problems.append(document.problem("key-without-effect", (*path, key), message, "remove it"))
    return problems


def check_columns(generator: str, columns: ColumnsConfig, document: Document, path: KeyPath) -> list[Problem]:
    """Columns that generated rows do not have; ``path`` is that of ``columns``."""
    problems = []
    for key in ("text", "text_pair", "label", "id", "group"):
        name = getattr(columns, key)
        if name is not None and (name not in COLUMNS[generator] or name != key):
            hint = suggestion(name, COLUMNS[generator], "its columns")
            problems.append(
                document.problem(
                    "column-missing", (*path, key), f"the rows of '{generator}' have no {key} '{name}'", hint
                )
            )
    return problems


def check_sizes(document: Document, tasks: Mapping[str, TaskConfig], builtin: Builtin | None) -> list[Problem]:
    """Sizes in ``params.yaml`` above the training rows of a built-in task, one problem per size.

    ``tasks`` are those of the grid; their wrong fields may be missing.
    """
    rows: dict[str, int] = {}
    for name, task in tasks.items():
        if builtin is not None and task.known("source", "splits") and isinstance(task.source, BuiltinSource):
            split = task.splits.train if task.splits.known("train") else None
            count = builtin.rows(task.source, split) if split is not None else None
            if count is not None:
                rows[name] = count
    problems = []
    settings = document.data.get("task_settings")
    own = [name for name in rows if isinstance(settings, dict) and "sizes" in (settings.get(name) or {})]
    shared = {name: count for name, count in rows.items() if name not in own}
    places: list[tuple[KeyPath, dict[str, int]]] = [(("grid", "sizes"), shared)]
    places += [(("task_settings", name, "sizes"), {name: rows[name]}) for name in own]
    every = [(at, counts, *item) for at, counts in places for item in enumerate(document.items(at))]
    for path, counts, i, size in every:
        if isinstance(size, bool) or not isinstance(size, int):
            continue
        if short := {name: count for name, count in counts.items() if count < size}:
            have = listing(f"'{name}' has {count}" for name, count in short.items())
            hint = f"use at most {min(short.values())} or full, or raise source.options.rows.train in the task's YAML"
            problems.append(
                document.problem("size-too-large", (*path, i), f"{size} training rows asked for, but {have}", hint)
            )
    return problems
