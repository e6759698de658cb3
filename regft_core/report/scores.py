"""The numbers of one block: scores, paired comparisons, failures, cost. Statistics come from ``statistics``."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace

from regft_core import metrics
from regft_core.errors import DataError
from regft_core.hooks.phase_entries import in_the_way_of_export, learns
from regft_core.hooks.registry import discover
from regft_core.kinds import find
from regft_core.report.decide import decide
from regft_core.report.facts import cost_of, declared, overrides, plain_cell
from regft_core.report.formatting import point_of, sign
from regft_core.report.looks import Look, Looks, digests
from regft_core.report.read_grid import BlockData, CellData, Inputs
from regft_core.report.values import Block, Comparison, Decision, Pair, Row, Score
from regft_core.schema.method import Method
from regft_core.schema.params import ReportConfig
from regft_core.statistics.arms import Arms, rank_sets
from regft_core.statistics.bootstrap import bounded
from regft_core.statistics.forecast import shares
from regft_core.statistics.verdict import judge

#: Recorded and recomputed metrics may differ by rounding only.
TOLERANCE = 1e-6


def build_block(data: BlockData, inputs: Inputs, looks: Looks, blocks: int, mixed: Sequence[str]) -> Block:
    """Compute one block of ``blocks``.

    Args:
        looks: counts how often its comparisons were looked at.
        mixed: who ran where, when its runs come from several environments.

    Raises:
        DataError: predictions do not give the recorded metrics.
    """
    methods, config, primary, reference = inputs.methods, inputs.config, data.primary, inputs.config.reference
    arms = {
        name: {m: arms_of(data, name, m, config, inputs.seeds, data.cells) for m in data.described.metrics}
        for name in data.set_rows
    }
    judging = {name: by_metric[primary] for name, by_metric in arms.items()}
    names = ordered(list(data.cells), methods, reference)
    pairs = [
        pair for name in names if not data.cells[name].constant for pair in opposites(name, methods, names, reference)
    ]
    comparisons = compared(data, judging, pairs, looks, config)
    plain, shared = plain_cell(data.cells, reference), inputs.training.get(data.task)
    rows: list[Row] = []
    for name in names:
        cell = data.cells[name]
        keys = [run.key for run in cell.runs]
        row = Row(
            **vars(cell),
            control_for=", ".join(controlled_methods(name, methods, names)) or None if name != reference else None,
            scores={
                place: {metric: _score(data, cell, place, metric, own) for metric, own in by_metric.items()}
                for place, by_metric in arms.items()
            },
            cost=cost_of(cell, plain),
            overrides=overrides(cell.finetune.training, shared.model_dump(mode="json")) if shared else {},
            comparisons=tuple(c for c in comparisons if c.method == name),
            same_runs_as=next((above.method for above in rows if [run.key for run in above.runs] == keys), None),
            still="dev" in judging and judging["dev"].still(name),
        )
        rows.append(row)
    nothing = Decision((f"On {data.title} no run finished, so there is nothing to take.",))
    block = Block(**vars(data), rows=tuple(rows), decision=nothing, mixed_environments=tuple(mixed))
    if "dev" not in judging:  # no run of the block finished
        return block
    block = against_frozen(block, judging, looks, config)
    registry = discover()
    without_export = {name for name in names if in_the_way_of_export(registry, methods[name].phases[-1].regularisers)}
    fixed = {name for name in names if data.cells[name].constant or not learns(registry, methods[name])}
    block = replace(block, decision=decide(block, judging, config, inputs.seeds, without_export, fixed))
    if blocks < 2:  # over a single block nothing is averaged
        return block
    finished, upwards = [row.method for row in rows if row.n_ok], metrics.higher_is_better(primary)
    ranks = rank_sets(judging["dev"], finished, confidence=config.confidence, higher_is_better=upwards, sets=blocks)
    return replace(block, ranks=ranks)


def arms_of(
    data: BlockData, set_name: str, metric: str, config: ReportConfig, seeds: Sequence[int], names: Iterable[str]
) -> Arms:
    """Some of the block's methods on one set, resampled."""
    rows = data.set_rows[set_name]
    return Arms(
        {name: {seed: sets[set_name] for seed, sets in data.cells[name].predictions.items()} for name in names},
        rows.gold,
        metric,
        samples=config.bootstrap_samples,
        confidence=config.confidence,
        positive_label_index=data.positive[set_name],
        expected_seeds=seeds,
        judged=rows.judged,
        groups=rows.groups,
    )


def _score(data: BlockData, cell: CellData, set_name: str, metric: str, arms: Arms) -> Score:
    estimate = bounded(arms.one(cell.method), *metrics.find(metric).range)
    recorded = {run.seed: run.sets[set_name] for run in cell.runs if run.ok}
    for seed, value in estimate.by_seed.items():
        if abs(recorded[seed].metrics[metric] - value) > TOLERANCE:
            raise DataError(
                "scores-differ",
                f"{cell.method} on {data.name}, seed {seed}: the predictions on {set_name} give {metric} {value:.6f}, "
                f"but result.json records {recorded[seed].metrics[metric]:.6f}"
                f"\n    -> the files below work/evaluate were edited: run `dvc repro`, which writes them again",
            )
    return Score(set_name, metric, estimate, _constant(data, set_name, metric, estimate.seeds))


def _constant(data: BlockData, set_name: str, metric: str, seeds: Sequence[int]) -> float:
    """The score of the best constant answer, one to all folds, as methods are scored; NaN without ``seeds``."""
    rows, measured = data.set_rows[set_name], metrics.find(metric)
    answers = find(data.described.kind).constant(rows.gold)
    parts = {0: slice(None)} if rows.judged is None else {seed: rows.judged[seed] for seed in seeds}
    values = [measured.score(rows.gold[at], answers[at], data.positive[set_name]) for at in parts.values()]
    return math.fsum(values) / len(values) if seeds else math.nan


# ------------------------------------------------------------------------------------- comparisons


def controlled_methods(method: str, methods: Mapping[str, Method], present: Iterable[str]) -> list[str]:
    """The methods that ``method`` controls for, as far as they are part of the grid.

    A variant (``variant_of``) without controls of its own has those of the method that it is a variant of.
    """
    others = [name for name in present if name != method]
    targets = set(methods[method].config.control_for)
    having_own = {target for name in (*others, method) for target in methods[name].config.control_for}
    return [
        name
        for name in others
        if name in targets or (name not in having_own and targets.intersection(methods[name].config.variant_of))
    ]


def ordered(names: Sequence[str], methods: Mapping[str, Method], reference: str) -> list[str]:
    """The reference first, then methods in the order of the grid, each followed by its controls."""
    parents = {name: next(iter(controlled_methods(name, methods, names)), None) for name in names}
    order: list[str] = [reference] if reference in names else []

    def add(name: str) -> None:
        if name not in order:
            order.append(name)
            for other in names:
                if parents[other] == name:
                    add(other)

    # Methods that name each other as controls have no root: they come last.
    for name in sorted(names, key=lambda name: parents[name] is not None):
        add(name)
    return order


def opposites(method: str, methods: Mapping[str, Method], names: Sequence[str], reference: str) -> list[Pair]:
    """Return those of ``names`` that ``method`` is compared with."""
    zero = {name for name in names if method in methods[name].zero_for}
    differs = {name: "plain fine-tuning" for name in names if name in zero}
    differs |= {c: methods[c].differs_by for c in names if method in controlled_methods(c, methods, names)}
    differs |= {name: "one ingredient alone" for name in methods[method].config.combines if name in names}
    pairs = [Pair(method, reference, "reference", "", reference in zero)] if reference in names else []
    pairs += [
        Pair(method, other, "control" if other in zero else "replacement", text, other in zero)
        for other, text in differs.items()
        if other != reference
    ]
    return [pair for pair in pairs if pair.other != method]


def compared(
    data: BlockData,
    arms: Mapping[str, Arms],
    pairs: Sequence[Pair],
    looks: Looks,
    config: ReportConfig,
    candidates: int = 1,
) -> list[Comparison]:
    """Judge ``pairs`` on every set, each role of a set as one family.

    Args:
        arms: set -> its primary metric.
        candidates: arms that the other side was picked from, which share the error.
    """
    metric, described = data.primary, metrics.find(data.primary)
    reach = described.largest_difference
    point = point_of(metric, (arms["dev"].one(name).mean for name in data.cells)) if "dev" in arms else 1.0
    comparisons = []
    for role in dict.fromkeys(pair.role for pair in pairs):
        family = [pair for pair in pairs if pair.role == role]
        looked = [_look(data, pair, looks, config) for pair in family]
        parts = max((shares(look.number) for look in looked if look is not None), default=1)
        for name, own in arms.items():
            samples = [own.sample(pair.method, pair.other) for pair in family]
            verdicts = judge(
                samples,
                role,
                confidence=config.confidence,
                point=point,
                higher_is_better=not described.lower_is_better,
                shares=parts * candidates,
            )
            for pair, verdict, look, sample in zip(family, verdicts, looked, samples, strict=True):
                estimate = bounded(own.difference(pair.method, pair.other), -reach, reach)
                mine, theirs = declared(data.cells[pair.method]), declared(data.cells[pair.other])
                comparison = Comparison(
                    **vars(pair),
                    set=name,
                    metric=metric,
                    estimate=estimate,
                    verdict=replace(verdict, low=max(verdict.low, -reach), high=min(verdict.high, reach)),
                    n_examples=own.count,
                    compute_ratio=mine / theirs if mine and theirs else None,
                    look=look,
                    sample=sample,
                )
                comparisons.append(comparison)
    return comparisons


def _look(data: BlockData, pair: Pair, looks: Looks, config: ReportConfig) -> Look | None:
    """Which look this is, remembered; None for the one that was planned."""
    runs = digests(data.cells[pair.method].finished, data.cells[pair.other].finished)
    look = looks.at(data.name, pair.method, pair.other, runs)
    return None if look is None or (len(look.seeds) == 1 and config.looks == "planned") else look


def against_frozen(block: Block, arms: Mapping[str, Arms], looks: Looks, config: ReportConfig) -> Block:
    """Return ``block`` with the arms that train the encoder compared with the best that does not (a constant is none).

    A pair that is compared already, as with the reference, keeps its verdict: one pair has one.
    """
    finished = [row for row in block.rows if row.n_ok]
    frozen = [row for row in finished if not (row.finetune.trains_encoder or row.constant)]
    if not frozen:
        return block
    best = max(frozen, key=lambda row: sign(block.primary) * row.scores["dev"][block.primary].estimate.mean).method
    known = {c.method for row in finished for c in row.comparisons if c.other == best}
    training = [row.method for row in finished if row.finetune.trains_encoder]
    pairs = [Pair(method, best, "opponent") for method in training if method not in known]
    # The best is picked by its score: the error is shared by all that might have been.
    judged = [c for c in compared(block, arms, pairs, looks, config, candidates=len(frozen)) if c.estimate.n]
    rows = (replace(row, opposed=tuple(c for c in judged if c.method == row.method)) for row in block.rows)
    return replace(block, frozen=best, rows=tuple(rows))
