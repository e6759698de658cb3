"""What a project needs from elsewhere, and whether it is on this disk: the encoder, and the rows of every set."""

from __future__ import annotations

import os
import shutil
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

from regft_core.data.hub import FOLDER, fetched_commit, is_fetched
from regft_core.data.prepare import resolve_ood
from regft_core.data.sources import Source
from regft_core.errors import DataError
from regft_core.evaluate.analyses import tasks_read
from regft_core.grid.assumed import encoder_weights
from regft_core.grid.in_grid import grid_rows
from regft_core.grid.time import estimate, gpu_line
from regft_core.models.source import encoder_present
from regft_core.names import gigabytes, listing, plural
from regft_core.schema.method import other_tasks
from regft_core.schema.tasks import FilesSource, HubSource
from regft_core.settings.checks.params import moves
from regft_core.settings.cost import PlanRow
from regft_core.settings.files import task_file
from regft_core.settings.layers import all_sizes
from regft_core.settings.papers.public_sizes import ENCODER_MILLIONS, published_rows
from regft_core.settings.project import Project
from regft_core.settings.store_path import store_path

#: Bytes of a weight in fp32, and of a row of text on average.
_WEIGHT, _ROW = 4, 300


@dataclass(frozen=True)
class Rows:
    """A split that something reads: ``used`` says by what. ``absent_file`` must be placed by hand."""

    source: Source
    split: str
    used: tuple[str, ...]
    present: bool
    absent_file: bool = False

    @property
    def where(self) -> str:
        """Source and revision, in words."""
        if not isinstance(self.source, HubSource):
            return f"data/{self.split}" if isinstance(self.source, FilesSource) else "built in"
        moving = " (moving: no commit is pinned)" if moves(self.source.revision) else ""
        named = "/".join(filter(None, [self.source.id, self.source.config]))
        revision = self.source.revision if moving else self.source.revision[:12]
        return f"{named} at {revision}{moving}, split {self.split}"


def rows_needed(project: Project) -> list[Rows]:
    """Every split that training and judging read, each once, in the order of the grid."""
    used: dict[tuple[str, str], tuple[Source, list[str]]] = {}

    def add(source: Source, split: str, by: str) -> None:
        names = used.setdefault((source.model_dump_json(), split), (source, []))[1]
        names.append(by) if by not in names else None

    trained = other_tasks(project.methods.values())
    for name in dict.fromkeys([*project.params.grid.tasks, *trained, *tasks_read(project.params)]):
        task = project.tasks[name]
        for split in (task.splits.train, task.splits.dev):
            if isinstance(split, str):  # else it is drawn from the training rows
                add(task.source, split, name)
        for judge in task.ood if name in project.params.grid.tasks else ():
            found = resolve_ood(name, judge, project.tasks)
            add(found.source, found.split, f"{judge} (judges {name})")
    # A project is only valid when the files that it must have are there.
    return [
        Rows(source, split, tuple(by), not isinstance(source, HubSource) or is_fetched(project.root, source, split))
        for (_, split), (source, by) in used.items()
    ]


def by_hand(project: Project) -> list[str]:
    """Files that judge as soon as somebody puts them there, and where they can be had."""
    return [
        f"{judge} (judges {task}): {out.why}; {_had(project, judge)}"
        for task, sets in project.left_out.items()
        for judge, out in sets.items()
        if out.file is not None
    ]


def _had(project: Project, judge: str) -> str:
    source = project.tasks[judge].source if judge in project.tasks else None
    get = source.get if isinstance(source, FilesSource) else None
    return get or f"{task_file(judge)} says how to make it"


def require_named_sets(project: Project) -> None:
    """Raise DataError, with every file at once, where ``ood`` names a set whose file is not there."""
    lacking = [] if isinstance(project.params.ood, str) else by_hand(project)
    if lacking:
        listed = "".join(f"\n  {text}" for text in lacking)
        hint = "put the files there, or take the sets out of ood"
        raise DataError("file-missing", f"ood names sets whose files are not there:{listed}\n    -> {hint}")


def encoder_bytes(project: Project) -> int | None:
    """About how many bytes the encoder's weights have in fp32; None when nothing tells."""
    name = project.params.model.name
    if name in ENCODER_MILLIONS:
        return ENCODER_MILLIONS[name] * 1_000_000 * _WEIGHT
    layers = encoder_weights(name, project.root)
    return None if layers is None else int(layers * 1.3 * _WEIGHT)


def describe(project: Project, command: str) -> str:
    """What ``--plan`` prints: needs, disk, hours, and what to do about what is missing.

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


def encoder_place() -> Path:
    """Where the hub's client keeps what it downloads."""
    from huggingface_hub.constants import HF_HUB_CACHE

    return Path(HF_HUB_CACHE)


def _disk(project: Project, planned: Iterable[PlanRow], missing: list[Rows], present: bool) -> list[str]:
    """What goes where, and how much room there is."""
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


def free_bytes(path: Path) -> int:
    """Bytes that are free where ``path`` is, or will be."""
    there = next(parent for parent in (path, *path.absolute().parents) if parent.exists())
    return shutil.disk_usage(there).free
