"""The numbers of one block: scores, paired comparisons, failures, cost. Statistics come from ``statistics``."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import replace

from regft_core import metrics
from regft_core.errors import DataError
from regft_core.hooks.phase_entries import in_the_way_of_export
from regft_core.hooks.registry import discover
from regft_core.report.compare import compared, controlled_methods, opponents, opposites, ordered
from regft_core.report.costs import cost_of, overrides, plain_cell
from regft_core.report.decide import decide
from regft_core.report.looks import Looks
from regft_core.report.model import Block, Row, Score
from regft_core.report.read_grid import BlockData, CellData, Inputs
from regft_core.schema.params import ReportConfig
from regft_core.statistics.arms import Arms
from regft_core.statistics.bootstrap import bounded
from regft_core.statistics.over_tasks import rank_sets

#: Recorded and recomputed metrics may differ by rounding only.
TOLERANCE = 1e-6


def build_block(
    data: BlockData, inputs: Inputs, looks: Looks | None = None, blocks: int = 1, mixed: Sequence[str] = ()
) -> Block:
    """Compute one block of ``blocks``.

    Args:
        looks: counts how often its comparisons were looked at.
        mixed: who ran where, when its runs come from several environments.

    Raises:
        DataError: predictions do not give the recorded metrics.
    """
    methods, config, primary, reference = inputs.methods, inputs.config, data.primary, inputs.config.reference
    # A set without any finished run has no gold labels here, and no scores.
    arms = {
        name: {metric: arms_of(data, name, metric, config, inputs.seeds) for metric in data.described.metrics}
        for name in data.sets
        if name in data.gold
    }
    judging = {name: by_metric[primary] for name, by_metric in arms.items()}
    names = ordered(list(data.cells), methods, reference)
    pairs = [
        pair for name in names if not data.cells[name].constant for pair in opposites(name, methods, names, reference)
    ]
    comparisons = compared(data, judging, pairs, looks, config)
    plain, shared = plain_cell(data.cells, reference), inputs.protocol(data.task)
    if shared is None and reference in data.cells:
        shared = data.cells[reference].finetune.training
    rows: list[Row] = []
    for name in names:
        cell = data.cells[name]
        row = Row(
            **vars(cell),
            control_for=", ".join(controlled_methods(name, methods, names)) or None if name != reference else None,
            differs_by=methods[name].config.differs_by,
            zero=bool(methods[name].config.zero_for),
            scores={
                place: {metric: _score(data, cell, place, metric, own) for metric, own in by_metric.items()}
                for place, by_metric in arms.items()
            },
            cost=cost_of(cell, plain),
            overrides=overrides(cell.finetune.training, shared),
            comparisons=tuple(c for c in comparisons if c.method == name),
            same_runs_as=next((above.method for above in rows if cell.keys and above.keys == cell.keys), None),
            still="dev" in judging and judging["dev"].still(name),
        )
        rows.append(row)
    block = Block(**vars(data), rows=tuple(rows), mixed_environments=tuple(mixed))
    if "dev" not in judging:  # no run of the block finished
        return block
    block = replace(block, opponents=opponents(block, judging, looks, config))
    registry = discover()
    without_export = {name for name in names if in_the_way_of_export(registry, methods[name].phases[-1].regularisers)}
    block = replace(block, decision=decide(block, judging, config, inputs.seeds, without_export))
    if blocks < 2:  # over a single block nothing is averaged
        return block
    finished, upwards = [row.method for row in rows if row.n_ok], metrics.higher_is_better(primary)
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
    estimate = bounded(arms.one(cell.method), *metrics.find(metric).range)
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
