"""What a reader must know beside the scores: warnings, data facts, versions, what methods logged."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from regft_core.data.leaks import leak_warning
from regft_core.data.splits import split_line
from regft_core.names import plural
from regft_core.report import truncation
from regft_core.report.compare import MethodMeta, controlled_methods
from regft_core.report.page.formatting import listed
from regft_core.report.read_grid import BlockData, CellData

#: Fewer show little (``benchmarks/verdicts.py``).
FEW_SEEDS = 6


@dataclass(frozen=True)
class Diagnostic:
    """One quantity that a method logged, over the seeds of a cell."""

    block: str
    method: str
    phase: str
    name: str
    n: int
    #: Mean over seeds of the value at the last step.
    last: float
    smallest: float
    largest: float


def warnings(
    blocks: Sequence[BlockData],
    methods: Mapping[str, MethodMeta],
    reference: str,
    seeds: Sequence[int],
    mixed: Mapping[str, Sequence[str]],
) -> tuple[str, ...]:
    """Everything that weakens a conclusion, the general before the particular; nothing twice.

    ``mixed`` holds what ``environments.check`` found: block -> who ran where.
    """
    found: list[str] = []
    if len(seeds) == 1:
        found.append("1 seed: it shows no spread, so no method is judged. Add seeds (grid.seeds).")
    elif len(seeds) < FEW_SEEDS:
        found.append(
            f"{len(seeds)} seeds show large differences only. `regft plan --detect 1` says how many "
            "a difference of 1 point takes."
        )
    present = list(dict.fromkeys(name for block in blocks for name in block.cells))
    if present and reference not in present:
        found.append(
            f"The reference {reference} is not a method of the grid: differences and cost ratios to it are missing."
        )
    for name in present:
        targets = methods[name].config.control_for
        if targets and name != reference and not controlled_methods(name, methods, present):
            found.append(f"{name} is a control for {listed(list(targets))}, not in the grid.")
    found += [
        f"{name}: the runs come from {len(lines)} environments, so differences are of machines as well as of methods "
        f"({'; '.join(lines)})."
        for name, lines in mixed.items()
    ]
    found += _mixtures(blocks)
    for block in blocks:
        found += _data_warnings(block) + _run_warnings(block)
    return tuple(dict.fromkeys(found))


def _mixtures(blocks: Sequence[BlockData]) -> list[str]:
    """Things that all cells should share."""
    manifests = [cell.finetune for block in blocks for cell in block.cells.values()]
    found = []
    models = sorted({f"{m.model.name} ({m.model.content_sha256[:12]})" for m in manifests if m.model})
    if len(models) > 1:
        found.append(f"Cells were trained from different models: {listed(models)}.")
    packages = sorted({name for m in manifests for name in m.versions})
    for name in packages:
        versions = sorted({str(m.versions.get(name, "none")) for m in manifests})
        if len(versions) > 1:
            found.append(f"Cells were trained with different versions of {name}: {listed(versions)}.")
    precisions = sorted({run.precision for m in manifests for run in m.runs if run.precision})
    if len(precisions) > 1:  # devices: environments.check
        found.append(f"Runs differ in precision: {listed(precisions)}.")
    return found


def _data_warnings(block: BlockData) -> list[str]:
    found = [f"{text}." for text in block.contaminated]
    for name, count in block.described.duplicates.items():
        if count and name == "train_within":
            repeat = "repeats" if count == 1 else "repeat"
            found.append(f"{block.task}: {plural(count, 'row')} of the training split {repeat} the text of another.")
        elif count:
            found.append(
                f"{block.task}: {plural(count, 'row')} of {name} have the text of a training row; scores on {name} "
                "count what was seen in training."
            )
    if leaks := leak_warning(block.task, block.described.model_dump()):
        found.append(leaks)
    for seed, entry in block.subsample.seeds.items():
        absent = [label for label, count in (entry.label_counts or {}).items() if count == 0]
        if absent:
            found.append(f"{block.name}, seed {seed}: the training rows have no example of {listed(absent)}.")
    return found


_NUMBER = re.compile(r"-?\d+\.\d+")


def _run_warnings(block: BlockData) -> list[str]:
    found = []
    for cell in block.cells.values():
        for text in dict.fromkeys(text for run in cell.runs for text in run.degraded):
            found.append(f"{cell.method} on {block.name} ran degraded: {text}")
        # Seeds that say the same but for its numbers are one warning, with the numbers of the first of them.
        texts: dict[tuple[str, str], dict[int, str]] = {}
        for run in cell.runs:
            for name, entry in run.sets.items():
                if warning := entry.warning:
                    texts.setdefault((name, _NUMBER.sub("#", warning)), {})[run.seed] = warning
        for (name, _), at in texts.items():
            where = ("seed " if len(at) == 1 else "seeds ") + ", ".join(map(str, at))
            first = next(iter(at.values()))
            says = f": {first}" if len(set(at.values())) == 1 else f"; seed {next(iter(at))}: {first}"
            found.append(f"{cell.method} on {block.name}, set {name}, {where}{says}")
    return found


def diagnostics(block: BlockData) -> list[Diagnostic]:
    """Last, smallest and largest value of what each method logged, per phase."""
    found = []
    for cell in block.cells.values():
        series: dict[tuple[str, str], dict[int, list[tuple[int, float]]]] = {}
        for seed, phase, step, name, value in cell.diagnostics:
            series.setdefault((phase, name), {}).setdefault(seed, []).append((step, value))
        for (phase, name), by_seed in series.items():
            values = [value for points in by_seed.values() for _, value in points]
            last = [max(points, key=lambda point: point[0])[1] for points in by_seed.values()]
            found.append(
                Diagnostic(
                    block.name, cell.method, phase, name, len(by_seed),
                    sum(last) / len(last), min(values), max(values),
                )
            )  # fmt: skip
    return found


def data_facts(blocks: Sequence[BlockData]) -> list[dict[str, Any]]:
    """Rows of the table about data: one per set of a task, and the draws of each size."""
    found: list[dict[str, Any]] = []
    for task in dict.fromkeys(block.task for block in blocks):
        own = [block for block in blocks if block.task == task]
        found.append(
            {
                "task": task,
                "described": own[0].described,
                "judging": split_line(own[0].described.model_dump()),
                "draws": [_draws(block) for block in own],
                "max_length": own[0].lengths["max_length"],
                "windows": own[0].lengths.get("windows", 1),
                "lengths": truncation.rows(own[0].lengths),
            }
        )
    return found


def _draws(block: BlockData) -> dict[str, Any]:
    entries = list(block.subsample.seeds.values())
    labels: dict[str, tuple[int, int]] = {}
    for label in (entries[0].label_counts or {}) if entries else {}:
        counts = [(entry.label_counts or {})[label] for entry in entries]
        labels[label] = (min(counts), max(counts))
    sets = list(entries[0].duplicates_with) if entries else []
    overlap = {name: max(entry.duplicates_with[name] for entry in entries) for name in sets}
    return {
        "size": block.size,
        "n": block.subsample.n,
        "stratified": block.subsample.stratified,
        "labels": labels,
        "overlap": {name: count for name, count in overlap.items() if count},
    }


def distinct(cells: Sequence[CellData], key: str) -> list[Any]:
    """The different values of one part of the fine-tuning manifests, in order of appearance."""
    found: list[Any] = []
    for cell in cells:
        value = getattr(cell.finetune, key)
        if value and value not in found:
            found.append(value)
    return found
