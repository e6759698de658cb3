"""The numbers of one block: scores, paired comparisons, failures, cost. Statistics come from ``statistics``."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import replace

from regft_core import metrics as known_metrics
from regft_core.errors import DataError
from regft_core.hooks.phase_entries import in_the_way_of_export
from regft_core.hooks.registry import discover
from regft_core.report.compare import compared, controlled_methods, opponents, opposites, same_runs
from regft_core.report.costs import cost_of, overrides, plain_cell
from regft_core.report.decide import decide
from regft_core.report.looks import Looks
from regft_core.report.model import Block, Row, Score
from regft_core.report.read_grid import BlockData, CellData, Inputs
from regft_core.schema.method import Method
from regft_core.schema.report import ReportConfig
from regft_core.statistics.arms import Arms
from regft_core.statistics.bootstrap import bounded
from regft_core.statistics.over_tasks import rank_sets

#: Recorded and recomputed metrics may differ by rounding only.
TOLERANCE = 1e-6


def ordered(names: Sequence[str], methods: Mapping[str, Method], reference: str) -> list[str]:
    """The reference first, then methods in the order of the grid, each followed by its controls."""
    parents = {name: next(iter(controlled_methods(name, methods, names)), None) for name in names}
    found: list[str] = [reference] if reference in names else []

    def add(name: str) -> None:
        if name not in found:
            found.append(name)
            for other in names:
                if parents[other] == name:
                    add(other)

    # Methods that name each other as controls have no root: they come last.
    for name in sorted(names, key=lambda name: parents[name] is not None):
        add(name)
    return found


def build_block(data: BlockData, inputs: Inputs, *, looks: Looks | None = None, blocks: int = 1) -> Block:
    """Compute one block of ``blocks``; ``looks`` counts how often its comparisons were looked at.

    Raises:
        DataError: predictions do not give the recorded metrics.
    """
    methods, config, described = inputs.methods, inputs.config, data.described
    sets = {name: described.sets[name].n for name in ["dev", *described.sets]}
    # A set without any finished run has no gold labels here, and no scores.
    arms = {
        (name, metric): arms_of(data, name, metric, config, inputs.seeds)
        for name in sets
        if name in data.gold
        for metric in described.metrics
    }
    judging = {name: own for (name, metric), own in arms.items() if metric == described.primary}
    names = ordered(list(data.cells), methods, config.reference)
    opposed = [name for name in names if not data.cells[name].constant]
    pairs = [pair for name in opposed for pair in opposites(name, methods, names, config.reference)]
    comparisons = compared(data, judging, pairs, looks, config)
    plain = plain_cell(data.cells, config.reference)
    shared_training = inputs.on_tasks.get(data.task, inputs.shared)
    if shared_training is None and config.reference in data.cells:
        shared_training = data.cells[config.reference].finetune.training
    rows: list[Row] = []
    for name in names:
        cell = data.cells[name]
        targets = [other for other in controlled_methods(name, methods, names) if name != config.reference]
        scores: dict[str, dict[str, Score]] = {place: {} for place in sets if place in data.gold}
        for (place, metric), own in arms.items():
            scores[place][metric] = _score(data, cell, place, metric, own)
        rows.append(
            Row(
                method=name,
                control_for=", ".join(targets) or None,
                differs_by=methods[name].config.differs_by,
                scores=scores,
                failed=tuple((run.seed, run.error or "no error recorded") for run in cell.runs if not run.ok),
                collapsed=tuple((run.seed, run.collapsed) for run in cell.runs if run.collapsed),
                n_expected=len(inputs.seeds),
                cost=cost_of(cell, plain),
                variants=tuple(sorted({run.variant for run in cell.runs if run.variant})),
                degraded=tuple(dict.fromkeys(text for run in cell.runs for text in run.degraded)),
                overrides=overrides(cell.finetune.training, shared_training),
                comparisons=tuple(c for c in comparisons if c.method == name),
                same_runs_as=same_runs(data, name, [row.method for row in rows]),
                still="dev" in judging and judging["dev"].still(name),
                constant=cell.constant,
                ingredients=len(cell.finetune.phases) + sum(map(len, cell.finetune.regularisers.values())),
            )
        )
    block = Block(
        data.task,
        data.size,
        described.kind,
        described.primary,
        tuple(described.metrics),
        sets,
        tuple(rows),
        folded=described.folded,
        absent=data.absent,
    )
    if "dev" not in judging:  # no run of the block finished
        return block
    block = replace(block, opponents=opponents(data, block, judging, looks, config))
    registry = discover()
    kept_back = {name for name in names if in_the_way_of_export(registry, methods[name].phases[-1].regularisers)}
    block = replace(block, decision=decide(block, judging, config, inputs.seeds, kept_back))
    if blocks < 2:  # over a single block nothing is averaged
        return block
    finished = [row.method for row in rows if row.n_ok]
    upwards = known_metrics.higher_is_better(block.primary)
    ranks = rank_sets(judging["dev"], finished, confidence=config.confidence, higher_is_better=upwards, sets=blocks)
    return replace(block, ranks=ranks)


def arms_of(
    data: BlockData,
    set_name: str,
    metric: str,
    config: ReportConfig,
    seeds: Sequence[int],
    names: Sequence[str] | None = None,
) -> Arms:
    """The block's methods (those of ``names``; None: all) on one set, resampled."""
    return Arms(
        {
            name: {seed: sets[set_name] for seed, sets in data.cells[name].predictions.items()}
            for name in (data.cells if names is None else names)
        },
        data.gold[set_name],
        metric,
        samples=config.bootstrap_samples,
        confidence=config.confidence,
        positive_label_index=data.positive[set_name],
        expected_seeds=seeds,
        judged=data.judged.get(set_name),
        groups=data.groups.get(set_name),
    )


def _score(data: BlockData, cell: CellData, set_name: str, metric: str, arms: Arms) -> Score:
    estimate = bounded(arms.one(cell.method), *known_metrics.find(metric).range)
    recorded = {run.seed: run.sets[set_name] for run in cell.runs if run.ok}
    for seed, value in zip(estimate.seeds, estimate.values, strict=True):
        if abs(recorded[seed].metrics[metric] - value) > TOLERANCE:
            raise DataError(
                "scores-differ",
                f"{cell.method} on {data.name}, seed {seed}: the predictions on {set_name} give {metric} {value:.6f}, "
                f"but result.json records {recorded[seed].metrics[metric]:.6f}"
                f"\n    -> the files below work/evaluate were edited: run `dvc repro`, which writes them again",
            )
    majority = next((scores.majority[metric] for scores in recorded.values()), math.nan)
    return Score(set_name, metric, estimate, majority)
