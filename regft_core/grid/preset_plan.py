"""Text of ``regft preset NAME --plan``: downloads, disk, hours, and the next command."""

from __future__ import annotations

import os
import shutil
from collections import Counter
from collections.abc import Sequence
from pathlib import Path

from regft_core.grid.cached import grid_rows
from regft_core.grid.fetch import by_hand, rows_needed
from regft_core.grid.time import estimate, gpu_line
from regft_core.models.source import encoder_present, encoder_weights
from regft_core.names import gigabytes, listing, plural
from regft_core.schema.encoder import EncoderConfig
from regft_core.settings.checks.sources import moves
from regft_core.settings.cost import PlanRow
from regft_core.settings.layers import all_sizes
from regft_core.settings.papers.public_sizes import ENCODER_MILLIONS
from regft_core.settings.project import Project
from regft_core.settings.store_path import store_path

#: Bytes of a weight in fp32.
_WEIGHT = 4


def describe(project: Project, command: str) -> str:
    """Return the text of ``--plan``: downloads, disk, hours, and the next command.

    ``command``: the preset's name with its ``--set``, as the next command takes them.
    """
    rows, planned, grid, mark = (
        rows_needed(project),
        grid_rows(project),
        project.params.grid,
        project.params.small_scale,
    )
    absent = [model for model in project.every_encoder() if not encoder_present(model, project.root)]
    lines = [mark.mark] if mark is not None else []
    lines += [
        f"{plural(len(project.methods), 'method')} x {plural(len(grid.tasks), 'task')} x "
        f"{plural(len(all_sizes(project.params)), 'size')} x {plural(len(grid.seeds), 'seed')}: "
        f"{plural(sum(row.to_train for row in planned), 'run')} to train",
        "",
        "encoder",
        *(f"  {_encoder(project, model, model not in absent)}" for model in project.every_encoder()),
        "data",
        *(f"  {_mark(one.present)}  {', '.join(one.used)}: {one.where}" for one in rows),
    ]
    reasons: dict[str, list[str]] = {}
    for task, sets in project.left_out.items():
        for name, out in sets.items():
            reasons.setdefault(out.why, []).append(f"{name} (judges {task})")
    lines += [f"  left out  {why}: {listing(names)}" for why, names in reasons.items()]
    if texts := by_hand(project):
        lines += ["by hand", *(f"  {text}" for text in texts)]
    lines += [
        "",
        *_disk(project, planned, absent),
        gpu_line(project, planned),
        estimate(project, planned).line(),
    ]
    splits = sum(not one.present for one in rows)
    missing = [plural(count, what) for count, what in ((len(absent), "encoder"), (splits, "split")) if count]
    if missing and mark is None:
        lines.append(f"missing: {' and '.join(missing)}\n    -> regft fetch --preset {command}")
    elif mark is None:
        lines.append(f"nothing is missing\n    -> regft preset {command}")
    return "\n".join(lines)


def _mark(present: bool) -> str:
    return "present" if present else "MISSING"


def _encoder(project: Project, model: EncoderConfig, present: bool) -> str:
    revision = f" at {model.revision[:12]}" if model.revision else ""
    revision += " (moving: no commit is pinned)" if model.revision and moves(model.revision) else ""
    size = encoder_bytes(project, model.name)
    return f"{_mark(present)}  {model.name}{revision}" + ("" if present or not size else f", about {gigabytes(size)}")


def encoder_bytes(project: Project, name: str) -> int | None:
    """Return about how many bytes an encoder's weights have in fp32; None when nothing tells."""
    if name in ENCODER_MILLIONS:
        return ENCODER_MILLIONS[name] * 1_000_000 * _WEIGHT
    layers = encoder_weights(name, project.root)
    return None if layers is None else int(layers * 1.3 * _WEIGHT)


def _disk(project: Project, planned: Sequence[PlanRow], absent: Sequence[EncoderConfig]) -> list[str]:
    """Return lines on disk space: what goes where, and how much is free."""
    from huggingface_hub.constants import HF_HUB_CACHE

    counts, budget = Counter[str](), int((project.params.store.budget_gb or 1e9) * 1e9)
    for row in planned:
        members = (
            phase.members for phase in project.method(row.cell.method, row.cell.task).phases if phase.members > 1
        )
        counts[project.model(row.cell.task).name] += row.to_train * (1 + sum(members))
    sizes = {model.name: encoder_bytes(project, model.name) for model in project.every_encoder()}
    total = None if None in sizes.values() else sum((sizes[name] or 0) * count for name, count in counts.items())
    places = [(model.name, sizes[model.name], Path(HF_HUB_CACHE)) for model in absent]
    what = f"{plural(counts.total(), 'set')} of weights"
    if total is not None and total > budget:
        what, total = f"{what}, all that the store's budget takes of them", budget
    places.append((what, total, store_path(project.root, project.params)))
    lines = []
    for what, need, place in places:
        free = shutil.disk_usage(next(path for path in (place, *place.absolute().parents) if path.exists())).free
        amount = "not known" if need is None else f"about {gigabytes(need)}"
        short = "  NOT ENOUGH" if need is not None and need > free else ""
        shown = os.path.normpath(place).replace(str(Path.home()), "~", 1)
        lines.append(f"disk: {what} {amount} in {shown}, free {gigabytes(free)}{short}")
    return lines
