"""Text of ``regft preset NAME --plan``: downloads, disk, hours, and the next command."""

from __future__ import annotations

import os
from collections.abc import Iterable
from pathlib import Path

from regft_core.data.hub import FOLDER, fetched_commit
from regft_core.grid.cached import grid_rows
from regft_core.grid.fetch import Rows, by_hand, encoder_bytes, encoder_place, free_bytes, rows_needed
from regft_core.grid.time import estimate, gpu_line
from regft_core.models.source import encoder_present
from regft_core.names import gigabytes, listing, plural
from regft_core.schema.tasks import HubSource
from regft_core.settings.checks.params import moves
from regft_core.settings.cost import PlanRow
from regft_core.settings.layers import all_sizes
from regft_core.settings.papers.public_sizes import published_rows
from regft_core.settings.project import Project
from regft_core.settings.store_path import store_path

#: Bytes of a row of text on average.
_ROW = 300


def describe(project: Project, command: str) -> str:
    """Return the text of ``--plan``: downloads, disk, hours, and the next command.

    ``command``: the preset's name with its ``--set``, as the next command takes them.
    """
    rows, present = rows_needed(project), encoder_present(project.params.model, project.root)
    planned = grid_rows(project)
    missing = [one for one in rows if not one.present]
    hands = by_hand(project)
    lines = [_grid(project, planned), "", _encoder(project, present), "data"]
    lines += [
        f"  {'present' if one.present else 'MISSING'}  {', '.join(one.used)}: {_source(project, one)}" for one in rows
    ]
    if project.left_out:
        out: dict[str, list[str]] = {}  # a line for each reason
        for task, sets in project.left_out.items():
            for judge, one in sets.items():
                out.setdefault(one.why, []).append(f"{judge} (judges {task})")
        lines += [f"  left out  {why}: {listing(judges)}" for why, judges in out.items()]
    lines += ["by hand", *(f"  {text}" for text in hands)] if hands else []
    times = [gpu_line(project, planned), estimate(project, planned).line()]
    lines += ["", *_disk(project, planned, missing, present), *times]
    moving = [one.where for one in rows if isinstance(one.source, HubSource) and moves(one.source.revision)]
    if moving:
        lines.append(f"moving: {plural(len(moving), 'split')} can change between two fetches; ood: leaves sets out")
    mark = project.params.small_scale
    if mark is not None:
        return "\n".join([mark.mark, *lines])
    if missing or not present:
        what = ([] if present else ["the encoder"]) + ([plural(len(missing), "split")] if missing else [])
        lines.append(f"missing: {' and '.join(what)}\n    -> regft fetch --preset {command}")
    else:
        lines.append(f"nothing is missing\n    -> regft preset {command}")
    return "\n".join(lines)


def _grid(project: Project, planned: Iterable[PlanRow]) -> str:
    grid, waiting = project.params.grid, sum(row.to_train for row in planned)
    sizes = plural(len(all_sizes(project.params)), "size")
    return (
        f"{plural(len(project.methods), 'method')} x {plural(len(grid.tasks), 'task')} x "
        f"{sizes} x {plural(len(grid.seeds), 'seed')}: {plural(waiting, 'run')} to train"
    )


def _encoder(project: Project, present: bool) -> str:
    model, size = project.params.model, encoder_bytes(project)
    revision = ""
    if model.revision:
        revision = f" at {model.revision[:12]}{' (moving: no commit is pinned)' if moves(model.revision) else ''}"
    shown = f", about {gigabytes(size)}" if size and not present else ""
    return f"encoder\n  {'present' if present else 'MISSING'}  {model.name}{revision}{shown}"


def _source(project: Project, one: Rows) -> str:
    commit = fetched_commit(project.root, one.source, one.split) if isinstance(one.source, HubSource) else None
    return one.where + (f", fetched from {commit[:12]}" if commit else "")


def _disk(project: Project, planned: Iterable[PlanRow], missing: list[Rows], present: bool) -> list[str]:
    """Lines on disk space: what goes where, and how much is free."""
    size, budget = encoder_bytes(project), project.params.store.budget_gb
    runs = members = 0
    for row in planned:
        runs += row.to_train
        phases = project.method(row.cell.method, row.cell.task).phases
        members += row.to_train * sum(phase.members for phase in phases if phase.members > 1)
    weights = None if size is None else size * (runs + members)
    if weights is not None and budget is not None:
        weights = min(weights, int(budget * 1e9))
    counts = {
        task.source.model_dump_json(): count
        for task in project.tasks.values()
        if (count := published_rows(task)) is not None
    }
    text = sum(counts.get(key, 0) for key in {one.source.model_dump_json() for one in missing}) * _ROW
    places = [
        ("the encoder", 0 if present else size, encoder_place()),
        ("the rows", text if missing else 0, project.root / FOLDER),
        (
            f"weights of {plural(runs, 'run')}{f' and {members} members' if members else ''}",
            weights,
            store_path(project.root, project.params),
        ),
    ]
    lines = []
    for what, need, place in places:
        if need != 0:
            amount, free = "not known" if need is None else f"about {gigabytes(need)}", free_bytes(place)
            short = "  NOT ENOUGH" if need is not None and need > free else ""
            lines.append(f"disk: {what} {amount} in {_shown(place)}, free {gigabytes(free)}{short}")
    return lines


def _shown(path: Path) -> str:
    home = str(Path.home())
    text = os.path.normpath(path)
    return f"~{text.removeprefix(home)}" if text.startswith(f"{home}{os.sep}") else os.path.relpath(text)
