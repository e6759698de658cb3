"""What weakens a conclusion, in sentences: environments, few seeds, the data, single runs."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from regft_core.data import lengths
from regft_core.data.leaks import leak_warning
from regft_core.errors import ConfigError, Problem
from regft_core.io.canonical import canonical_json
from regft_core.names import plural
from regft_core.report import evaluations
from regft_core.report.compare import controlled_methods
from regft_core.report.facts import TunedArm, lengths_by_task
from regft_core.report.inputs import Inputs
from regft_core.report.model import Block
from regft_core.report.page.formatting import listed
from regft_core.report.read_grid import BlockData
from regft_core.report.sentences import looked_at

#: Fewer show little (``benchmarks/verdicts.py``).
FEW_SEEDS = 6
UNKNOWN = "unknown (the records do not say)"
_NUMBER = re.compile(r"-?\d+\.\d+")


def all_warnings(
    data: Sequence[BlockData],
    blocks: Sequence[Block],
    inputs: Inputs,
    mixed: Mapping[str, Sequence[str]],
    tuned: Sequence[TunedArm],
) -> tuple[str, ...]:
    """Everything that weakens a conclusion, the general before the particular; nothing twice.

    ``mixed`` holds what ``environments`` found: block -> who ran where.
    """
    found = [
        *left_out(inputs),
        *(f"No result for {cell}: {reason.splitlines()[0]}" for cell, reason in inputs.failed.items()),
        # What the model never saw comes before everything else.
        *truncation(data),
        *evaluations.failures(data),
        *_tuning(tuned),
        *looked_at(blocks),
        *_grid(data, inputs),
    ]
    found += [
        f"{name}: the runs come from {len(lines)} environments, so differences are of machines as well as of methods "
        f"({'; '.join(lines)})."
        for name, lines in mixed.items()
    ]
    found += _mixtures(data)
    for block in data:
        found += [*_data(block), *_runs(block)]
    return tuple(dict.fromkeys(found))


def left_out(inputs: Inputs) -> tuple[str, ...]:
    """Declared out-of-distribution sets that are not evaluated on, with the reasons."""
    return tuple(
        f"{task} is not evaluated on {listed([name for name, one in sets.items() if one.why == reason])}: {reason}."
        for task, sets in inputs.left_out.items()
        for reason in dict.fromkeys(one.why for one in sets.values())
    )


def truncation(blocks: Sequence[BlockData]) -> tuple[str, ...]:
    """Sets that lost more than a tenth of their rows' ends, with the value to set."""
    by_task = lengths_by_task(blocks)
    return tuple(text for task, found in by_task.items() for text in lengths.warnings(task, *found))


def _tuning(arms: Sequence[TunedArm]) -> Iterator[str]:
    for block in dict.fromkeys(arm.block for arm in arms):
        own = [arm for arm in arms if arm.block == block]
        if published := [arm.method for arm in own if arm.selection == "dev_as_published"]:
            yield (
                f"{block}: hyper-parameters of {', '.join(published)} were chosen on the validation set that they are "
                "also evaluated on (as published); their scores on it are optimistic"
            )
        if len({arm.trials for arm in own}) > 1:
            counts = ", ".join(f"{arm.method} {arm.trials}" for arm in own)
            yield f"{block}: methods were tuned with different numbers of trials ({counts})"


def _grid(data: Sequence[BlockData], inputs: Inputs) -> Iterator[str]:
    if len(inputs.seeds) == 1:
        yield "1 seed: it shows no spread, so there are no verdicts. Add seeds (grid.seeds)."
    elif len(inputs.seeds) < FEW_SEEDS:
        yield (
            f"{len(inputs.seeds)} seeds show large differences only. `regft plan --detect 1` says how many "
            "a difference of 1 point takes."
        )
    reference, present = inputs.config.reference, list(dict.fromkeys(name for block in data for name in block.cells))
    if present and reference not in present:
        yield f"The reference {reference} is not a method of the grid: differences and cost ratios to it are missing."
    for name in present:
        targets = inputs.methods[name].config.control_for
        if targets and name != reference and not controlled_methods(name, inputs.methods, present):
            yield f"{name} is a control for {listed(list(targets))}, not in the grid."


def _mixtures(blocks: Sequence[BlockData]) -> Iterator[str]:
    """Things that all cells should share."""
    manifests = [cell.finetune for block in blocks for cell in block.cells.values()]
    models = sorted({f"{m.model.name} ({m.model.content_sha256[:12]})" for m in manifests if m.model})
    if len(models) > 1:
        yield f"Cells were trained from different models: {listed(models)}."
    for name in sorted({name for m in manifests for name in m.versions}):
        versions = sorted({str(m.versions.get(name, "none")) for m in manifests})
        if len(versions) > 1:
            yield f"Cells were trained with different versions of {name}: {listed(versions)}."
    precisions = sorted({run.precision for m in manifests for run in m.runs if run.precision})
    if len(precisions) > 1:
        yield f"Runs differ in precision: {listed(precisions)}."


def _data(block: BlockData) -> Iterator[str]:
    yield from (f"{text}." for text in block.contaminated)
    for name, count in block.described.duplicates.items():
        if count and name == "train_within":
            repeat = "repeats" if count == 1 else "repeat"
            yield f"{block.task}: {plural(count, 'row')} of the training split {repeat} the text of another."
        elif count:
            yield (
                f"{block.task}: {plural(count, 'row')} of {name} have the text of a training row; scores on {name} "
                "count what was seen in training."
            )
    if leaks := leak_warning(block.task, block.described.model_dump()):
        yield leaks
    for seed, entry in block.subsample.seeds.items():
        if absent := [label for label, count in (entry.label_counts or {}).items() if count == 0]:
            yield f"{block.name}, seed {seed}: the training rows have no example of {listed(absent)}."


def _runs(block: BlockData) -> Iterator[str]:
    for cell in block.cells.values():
        for text in dict.fromkeys(text for run in cell.runs for text in run.degraded):
            yield f"{cell.method} on {block.name} ran degraded: {text}"
        # Seeds with the same warning but for its numbers give one, with the numbers of the first of them.
        texts: dict[tuple[str, str], dict[int, str]] = {}
        for run in cell.runs:
            for name, entry in run.sets.items():
                if warning := entry.warning:
                    texts.setdefault((name, _NUMBER.sub("#", warning)), {})[run.seed] = warning
        for (name, _), at in texts.items():
            where = ("seed " if len(at) == 1 else "seeds ") + ", ".join(map(str, at))
            first = next(iter(at.values()))
            numbers = f": {first}" if len(set(at.values())) == 1 else f"; seed {next(iter(at))}: {first}"
            yield f"{cell.method} on {block.name}, set {name}, {where}{numbers}"


# -------------------------------------------------------------------------------------- environments


def environments(blocks: Sequence[BlockData], mixed: str) -> dict[str, tuple[str, ...]]:
    """Return the marks of blocks whose runs come from several environments: name -> who ran where.

    A GPU and a CPU, or two thread counts, give other bits and another speed, and another encoder is another experiment:
    differences would be of machines or checkpoints, not of methods. Mixed machines can be marked, mixed encoders not.

    Args:
        mixed: ``refuse`` or ``mark``, as ``report.mixed_environments`` says.

    Raises:
        ConfigError: a block mixes encoders, or environments while ``mixed`` is ``refuse``.
    """
    problems: list[Problem] = []
    marks: dict[str, tuple[str, ...]] = {}
    for block in blocks:
        problems += _encoders(block)
        places = runs_by_environment(block)
        if len(places) < 2:
            continue
        lines = tuple(f"{place}: {_who(methods, block)}" for place, methods in places.items())
        marks[block.name] = lines
        if mixed == "refuse":
            message = f"the runs of {block.name} come from {len(places)} environments\n      " + "\n      ".join(lines)
            hint = (
                "train all of them on one machine with one device and thread count (`dvc repro -f finetune` there), "
                "or set report.mixed_environments: mark"
            )
            problems.append(Problem("mixed-environments", "params.yaml", 0, "report.mixed_environments", message, hint))
    if problems:
        raise ConfigError(problems)
    return marks


def runs_by_environment(block: BlockData) -> dict[str, dict[str, list[int]]]:
    """Return environment -> method -> seeds that ran there, over all phases of training.

    Records without the field count as one environment of their own, the unknown one.
    """
    found: dict[str, dict[str, list[int]]] = {}
    for cell in block.cells.values():
        records = [*cell.finetune.runs, *(cell.search.runs if cell.search is not None else ())]
        for run in cell.runs:
            for place in sorted({described(one.environment) for one in records if one.seed == run.seed}):
                found.setdefault(place, {}).setdefault(cell.method, []).append(run.seed)
    return found


def described(environment: Any) -> str:
    """One line for people: device and name first, everything else as ``key value``."""
    if not environment:
        return UNKNOWN
    first = [str(environment[key]) for key in ("device", "name") if environment.get(key) not in (None, "")]
    rest = [
        f"{key} {canonical_json(value) if isinstance(value, dict | list) else value}"
        for key, value in sorted(environment.items())
        if key not in ("device", "name")
    ]
    return ", ".join([" ".join(first), *rest] if first else rest)


def _who(methods: Mapping[str, list[int]], block: BlockData) -> str:
    """``a, b (seeds 0, 1)``: seeds are named for methods of which only some ran there."""
    parts = []
    for method, seeds in methods.items():
        every = [run.seed for run in block.cells[method].runs]
        some = "" if seeds == every else f" ({'seed' if len(seeds) == 1 else 'seeds'} {', '.join(map(str, seeds))})"
        parts.append(method + some)
    return listed(parts)


def _encoders(block: BlockData) -> Iterator[Problem]:
    found: dict[str, list[str]] = {}
    for cell in block.cells.values():
        if (model := cell.finetune.model) is not None:
            found.setdefault(model.content_sha256, []).append(cell.method)
    if len(found) > 1:
        lines = "\n      ".join(f"{digest[:12]}: {listed(methods)}" for digest, methods in found.items())
        message = f"the methods of {block.name} started from {plural(len(found), 'different encoder')}\n      {lines}"
        hint = "compared methods share the encoder's content: run `dvc repro`, which trains the outdated ones again"
        yield Problem("mixed-encoders", "params.yaml", 0, "model", message, hint)
