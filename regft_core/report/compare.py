"""Comparisons of one block, and the verdict on it. The words come from ``statistics.verdict``."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace

import numpy as np

from regft_core import metrics
from regft_core.report.costs import declared
from regft_core.report.looks import Look, Looks, digests
from regft_core.report.model import Block, Comparison, Opponents, Pair
from regft_core.report.read_grid import BlockData
from regft_core.schema.method import Method
from regft_core.schema.params import ReportConfig
from regft_core.statistics.arms import Arms
from regft_core.statistics.bootstrap import bounded
from regft_core.statistics.power import shares
from regft_core.statistics.verdict import judge


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
    zero = {name for name in names if method in methods[name].config.zero_for}
    differs = {name: "plain fine-tuning" for name in names if name in zero}
    differs |= {c: methods[c].config.differs_by for c in names if method in controlled_methods(c, methods, names)}
    differs |= {name: "one ingredient alone" for name in methods[method].config.combines if name in names}
    pairs = [Pair(method, reference, "reference", "", reference in zero)] if reference in names else []
    pairs += [
        Pair(method, other, "control" if other in zero else "replacement", text, other in zero)
        for other, text in differs.items()
        if other != reference
    ]
    return [pair for pair in pairs if pair.other != method]


def point_of(metric: str, scores: Iterable[float]) -> float:
    """One shown point in the metric's unit; of a metric without bounds one per cent of the median score."""
    described = metrics.find(metric)
    if math.isinf(described.largest_difference):
        return 0.01 * (abs(float(np.median(list(scores) or [1.0]))) or 1.0)
    return 1 / described.factor


def compared(
    data: BlockData,
    arms: Mapping[str, Arms],
    pairs: Sequence[Pair],
    looks: Looks | None,
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
            n = len(data.gold[name])
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
                    n_examples=n,
                    identical=own.identical(pair.method, pair.other),
                    examples=estimate.mean * n if described.counts_examples and estimate.n else None,
                    compute_ratio=mine / theirs if mine and theirs else None,
                    look=look,
                    sample=sample,
                )
                comparisons.append(comparison)
    return comparisons


def _look(data: BlockData, pair: Pair, looks: Looks | None, config: ReportConfig) -> Look | None:
    """Which look this is, remembered; None for the one that was planned."""
    if looks is None:
        return None
    keys = [{run.seed: run.key for run in data.cells[name].runs if run.ok} for name in (pair.method, pair.other)]
    look = looks.at(data.name, pair.method, pair.other, digests(*keys))
    return None if look is None or (len(look.seeds) == 1 and config.looks == "planned") else look


def opponents(block: Block, arms: Mapping[str, Arms], looks: Looks | None, config: ReportConfig) -> Opponents | None:
    """The arms that train the encoder against the best that does not (a constant is none); None without such an arm.

    A pair that is compared already, as with the reference, keeps its verdict: one pair has one.
    """
    finished = [row for row in block.rows if row.n_ok]
    frozen = [row for row in finished if not (row.finetune.trains_encoder or row.constant)]
    if not frozen:
        return None
    sign = 1.0 if metrics.higher_is_better(block.primary) else -1.0
    best = max(frozen, key=lambda row: sign * row.scores["dev"][block.primary].estimate.mean).method
    training = [row for row in finished if row.finetune.trains_encoder]
    known = {row.method: [c for c in row.comparisons if c.other == best] for row in training}
    # The best is picked by its score: the error is shared by all that might have been.
    pairs = [Pair(method, best, "opponent") for method, comparisons in known.items() if not comparisons]
    judged = compared(block, arms, pairs, looks, config, candidates=len(frozen))
    found = [c for method in known for c in known[method] or [c for c in judged if c.method == method]]
    return Opponents(best, tuple(c for c in found if c.estimate.n))
