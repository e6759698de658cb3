"""Warnings that weaken a conclusion: environments, few seeds, the data, single runs."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

from regft_core.data import lengths
from regft_core.data.checks import leak_warning
from regft_core.errors import ConfigError, Problem
from regft_core.names import plural
from regft_core.report.evaluations import EvaluationSection
from regft_core.report.facts import TunedArm
from regft_core.report.formatting import listed
from regft_core.report.looks import looked_at
from regft_core.report.read_grid import BlockData, Inputs
from regft_core.report.scores import as_control
from regft_core.report.values import Block
from regft_core.runs.environment import describe_environment
from regft_core.settings.encoders import read_contamination

#: Fewer show little (``benchmarks/statistics.md``).
FEW_SEEDS = 6


def all_warnings(
    blocks: Sequence[Block], inputs: Inputs, tuned: Sequence[TunedArm], sections: Sequence[EvaluationSection]
) -> tuple[str, ...]:
    texts = [
        *left_out(inputs),
        *(f"No result for {cell}: {reason.splitlines()[0]}" for cell, reason in inputs.failed.items()),
        *(text for block in blocks for text in lengths.warnings(block.task, block.lengths)),
        *(
            f"Evaluation {section.name} on {found.block.name}: {text}"
            for section in sections
            for found in section.found
            for text in found.remarks
            if ": failed: " in text
        ),
        *_tuning(tuned),
        *looked_at(blocks),
        *_grid(blocks, inputs),
        *_mixtures(blocks),
        *(
            f"{block.name}: the runs come from {len(lines)} environments, so differences are of machines as well "
            f"as of methods ({'; '.join(lines)})."
            for block in blocks
            if (lines := block.mixed_environments)
        ),
        *(text for block in blocks for text in (*_data(block, inputs.root), *_runs(block))),
    ]
    return tuple(dict.fromkeys(texts))


def left_out(inputs: Inputs) -> tuple[str, ...]:
    late = inputs.config.not_run
    return (f"Not run, for the minutes of `regft fit` were over: {listed(list(late))}.",) * bool(late) + tuple(
        f"{task} is not evaluated on {listed([name for name, of in sets.items() if of.why == reason])}: {reason}."
        for task, sets in inputs.left_out.items()
        for reason in dict.fromkeys(of.why for of in sets.values())
    )


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
        in_grid = any(control.control_for in present for control in as_control(name, inputs))
        if targets and name != reference and not in_grid:
            yield f"{name} is a control for {listed(list(targets))}, not in the grid."


def _mixtures(blocks: Sequence[BlockData]) -> Iterator[str]:
    """Versions of packages and precisions that differ between cells."""
    shared: dict[str, set[str]] = {}
    for manifest in (cell.finetune for block in blocks for cell in block.cells.values()):
        for name, version in manifest.versions.items():
            shared.setdefault(f"versions of {name}", set()).add(str(version))
        shared.setdefault("precisions", set()).update(run.precision for run in manifest.runs if run.precision)
    if mixed := [f"{what} ({listed(sorted(values))})" for what, values in shared.items() if len(values) > 1]:
        yield f"Cells were trained with different {listed(mixed)}."


def _data(block: BlockData, root: Path) -> Iterator[str]:
    seen, others = read_contamination(root), [name for name in block.described.sets if name != "dev"]
    trained = [cell.finetune for cell in block.cells.values() if cell.finetune.reads_encoder]
    for encoder in dict.fromkeys(manifest.model["name"] for manifest in trained):
        yield from (f"{text}." for text in seen.sentences(encoder, block.task, others))
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
    counts = [entry.label_counts or {} for entry in block.subsample.seeds.values()]
    if absent := Counter(label for one in counts for label, count in one.items() if count == 0):
        lacking = [f"{label} ({plural(seeds, 'seed')})" for label, seeds in absent.items()]
        yield f"{block.name}: training rows of some seeds have no example of {listed(lacking)}."


def _runs(block: BlockData) -> Iterator[str]:
    degraded: dict[str, dict[str, str]] = {}  # methods and runs whose notes differ in numbers alone share a warning
    for method, note in ((cell.method, text) for cell in block.cells.values() for text in cell.degraded):
        degraded.setdefault(re.sub(r"^\w+: |\d+", "#", note), {}).setdefault(method, note)
    for methods in degraded.values():
        yield f"{listed(list(methods))} on {block.name} ran degraded: {next(iter(methods.values()))}"
    for cell in block.cells.values():
        for name in block.described.sets:
            seeds = {str(run.seed): text for run in cell.runs if name in run.sets and (text := run.sets[name].warning)}
            if seeds:  # the text of the first of them: others may differ by their numbers
                where = f"{cell.method} on {block.name}, set {name}, seeds {listed(list(seeds))}"
                yield f"{where}: {next(iter(seeds.values()))}"


def environments(blocks: Sequence[BlockData], mixed: str) -> dict[str, tuple[str, ...]]:
    """Block -> who ran where, of blocks whose runs come from several environments.

    Runs of one comparison share their encoder and their environment, over all phases of training: a difference would be
    of encoders or machines instead of methods. Mixed machines can be marked, mixed encoders not.

    Raises ConfigError where a block mixes encoders, or environments while ``report.mixed_environments`` is ``refuse``.
    """
    problems, marks = list[Problem](), dict[str, tuple[str, ...]]()

    def refuse(code: str, path: str, what: str, groups: Mapping[str, Sequence[str]], hint: str) -> None:
        text = "\n      ".join([what, *_methods(groups)])
        problems.append(Problem(code, "params.yaml", 0, path, text, hint))

    for block in blocks:
        encoders, places = dict[str, list[str]](), dict[str, list[str]]()
        for cell in block.cells.values():
            encoders.setdefault(cell.finetune.model["sha256"][:12], []).append(cell.method)
            records = (*cell.finetune.runs, *(cell.search.runs if cell.search is not None else ()))
            for place in sorted({describe_environment(record.environment) for record in records}):
                places.setdefault(place, []).append(cell.method)
        if len(encoders) > 1:
            what = f"the methods of {block.name} started from {len(encoders)} different encoders"
            hint = "compared methods share the encoder's content: run `dvc repro`, which trains the outdated ones again"
            refuse("mixed-encoders", "model", what, encoders, hint)
        if len(places) > 1:
            marks[block.name] = _methods(places)
        if len(places) > 1 and mixed == "refuse":
            what = f"the runs of {block.name} come from {len(places)} environments"
            hint = (
                "train all of them on one machine with one device and thread count (`dvc repro -f finetune` there), or "
                "set report.mixed_environments: mark"
            )
            refuse("mixed-environments", "report.mixed_environments", what, places, hint)
    if problems:
        raise ConfigError(problems)
    return marks


def _methods(groups: Mapping[str, Sequence[str]]) -> tuple[str, ...]:
    return tuple(f"{name}: {listed(methods)}" for name, methods in groups.items())
