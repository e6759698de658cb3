"""Checks on built-in tasks: a YAML may describe the generated rows, but it cannot change them."""

from __future__ import annotations

from collections.abc import Mapping

from pydantic import ValidationError

from regft_core.data.builtin import SPLITS, BuiltinOptions
from regft_core.errors import Problem
from regft_core.names import listing, suggestion
from regft_core.schema.tasks import BuiltinSource, ColumnsConfig, OodConfig, TaskConfig
from regft_core.settings.document import Document, KeyPath
from regft_core.settings.validate import validate

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


def check_options(source: BuiltinSource, document: Document, path: KeyPath) -> list[Problem]:
    """Return problems of the options of the ``source`` at ``path``."""
    if "options" not in source.model_fields_set:
        return []
    return validate(BuiltinOptions, document, (*path, "options"))[1]


def _rows(source: BuiltinSource, split: str) -> int | None:
    """Return the rows of a split; None for wrong options or an unknown split."""
    if split not in SPLITS:
        return None
    try:
        return int(getattr(BuiltinOptions.model_validate(source.options).rows, split))
    except ValidationError:
        return None


def check_kind(kind: str, source: BuiltinSource, document: Document, path: KeyPath) -> list[Problem]:
    """Return whether the generator of the ``source`` at ``path`` makes tasks of another kind."""
    needed = "classification" if source.generator in LABELS else "regression"
    if kind == needed:
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
    if targets is not None and isinstance(config, TaskConfig) and config.range is not None:
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


def check_sizes(document: Document, tasks: Mapping[str, TaskConfig]) -> list[Problem]:
    """Return sizes in ``params.yaml`` above the training rows of a built-in task of the grid, one problem per size."""
    sources = {name: (task.source, task.splits.train) for name, task in tasks.items()}
    counts = {
        name: count
        for name, (source, split) in sources.items()
        if isinstance(source, BuiltinSource) and split is not None and (count := _rows(source, split)) is not None
    }
    own = [name for name in counts if document.value(("task_settings", name, "sizes")) is not None]
    places: list[tuple[KeyPath, dict[str, int]]] = [
        (("task_settings", name, "sizes"), {name: counts[name]}) for name in own
    ]
    places.append((("grid", "sizes"), {name: count for name, count in counts.items() if name not in own}))
    problems = []
    for path, most in places:
        for i, size in enumerate(document.items(path)):
            short = {name: count for name, count in most.items() if isinstance(size, int) and count < size}
            if short:
                have = listing(f"'{name}' has {count}" for name, count in short.items())
                hint = (
                    f"use at most {min(short.values())} or full, or raise source.options.rows.train in the task's YAML"
                )
                message = f"{size} training rows asked for, but {have}"
                problems.append(document.problem("size-too-large", (*path, i), message, hint))
    return problems
