"""Warnings from the prepared datasets: sizes that they lack, and rare classes."""

from __future__ import annotations

import math
from collections.abc import Iterable
from contextlib import suppress

from regft_core.disk.reading import read_json
from regft_core.errors import StoreError
from regft_core.kinds import find
from regft_core.names import listing, plural
from regft_core.settings.cost import prepared_rows
from regft_core.settings.layers import sizes_of
from regft_core.settings.project import Project

#: A class with a smaller share of the training rows is called rare; of many classes, with less than that part of an
#: equal share.
RARE, OF_EQUAL = 0.2, 0.6


def size_warnings(project: Project) -> list[str]:
    """Sizes of the grid above the training rows of a task as last prepared; none for tasks that never were.

    Warnings, since the rows may have changed after; the stage ``subsample`` refuses such a size.
    """
    texts = []
    for task in project.params.grid.tasks:
        rows = prepared_rows(project.root, task)
        if rows is None:
            continue
        large = [str(size) for size in sizes_of(project.params, task) if size != "full" and size > rows]
        if large:
            texts.append(
                f"sizes: {listing(large)} is more than the {plural(rows, 'training row')} of '{task}' when it was "
                f"last prepared; take at most {rows}, or 'full'"
            )
    return texts


def skew_warnings(project: Project, tasks: Iterable[str] | None = None) -> list[str]:
    """Tasks that accuracy ranks methods on, although a class is rare in the rows drawn at the largest size.

    One line a task; ``tasks``: only of these.
    """
    texts = []
    for name in project.params.grid.tasks if tasks is None else tasks:
        task = project.tasks[name]
        if not find(task.kind).one_label or task.primary != "accuracy":
            continue
        counts = _drawn(project, name)
        total = sum(counts.values())
        limit = min(RARE, OF_EQUAL / max(1, len(counts))) * total
        if rare := [f"'{label}' {count / total:.0%}" for label, count in counts.items() if count < limit]:
            remedy = "metrics: [accuracy, f1_macro] and primary: f1_macro"
            if project.shared(name).class_weights == "none":
                remedy += ", perhaps with training: {class_weights: balanced}"
            texts.append(
                f"task '{name}': few training rows are {listing(rare)}, and accuracy hardly counts them; set {remedy}"
            )
    return texts


def _drawn(project: Project, task: str) -> dict[str, int]:
    """Rows of each label at the largest size that is drawn, of one seed; empty where none is."""
    sizes = sizes_of(project.params, task)
    for size in sorted(sizes, key=lambda size: math.inf if size == "full" else size, reverse=True):
        with suppress(StoreError):
            manifest = read_json(project.root / "work" / "subsamples" / task / str(size) / "manifest.json")
            return next((dict(draw["label_counts"] or {}) for draw in manifest["seeds"].values()), {})
    return {}
