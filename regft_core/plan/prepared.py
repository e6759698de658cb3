"""What the prepared datasets say of a grid: sizes that they cannot give, rows that are not drawn yet."""

from __future__ import annotations

from regft_core.config.cost import prepared_rows
from regft_core.config.project import Project
from regft_core.names import listing, plural


def size_warnings(project: Project) -> list[str]:
    """Sizes of the grid above the training rows of a task as last prepared; none for tasks that never were.

    Warnings, since the rows may have changed after; the stage ``subsample`` refuses such a size.
    """
    found = []
    for task in project.params.grid.tasks:
        rows = prepared_rows(project.root, task)
        if rows is None:
            continue
        large = [str(size) for size in project.params.grid.sizes if size != "full" and size > rows]
        if large:
            found.append(
                f"grid.sizes: {listing(large)} is more than the {plural(rows, 'training row')} of '{task}' when it was "
                f"last prepared; take at most {rows}, or 'full'"
            )
    return found


def undrawn(project: Project) -> str:
    """A line on cells of prepared tasks whose rows are not drawn for every seed; empty when there are none.

    Without its rows a run has no key, so that the plan counts it as one to train.
    """
    grid, missing = project.params.grid, []
    for task in grid.tasks:
        if prepared_rows(project.root, task) is None:
            continue
        for size in grid.sizes:
            folder = project.root / "work" / "subsamples" / task / str(size)
            seeds = [str(seed) for seed in grid.seeds if not (folder / f"seed-{seed}.jsonl").is_file()]
            if seeds:
                missing.append(f"{task}-{size} (seeds {listing(seeds)})")
    if not missing:
        return ""
    return (
        f"rows not drawn yet: {listing(missing)}; their runs count as to train even where the run store has them. "
        "`dvc repro plan` draws them"
    )
