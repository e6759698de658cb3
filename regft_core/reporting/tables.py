"""The numbers of one block: scores, paired comparisons, failures, cost. Statistics come from ``statistics``."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from functools import lru_cache
from typing import Any, Protocol

from regft_core import metrics as known_metrics
from regft_core.config.schema.methods import MethodConfig
from regft_core.config.schema.report import ReportConfig
from regft_core.errors import DataError
from regft_core.hooks.exports import in_the_way_of_export
from regft_core.hooks.registry import discover
from regft_core.reporting.costs import cost_of, declared, overrides
from regft_core.reporting.decide import decide
from regft_core.reporting.interim import Looks
from regft_core.reporting.model import Block, Comparison, Opponents, Role, Row, Score
from regft_core.reporting.read_grid import BlockData, CellData
from regft_core.statistics.arms import Arms
from regft_core.statistics.bootstrap import Estimate, bounded
from regft_core.statistics.detectable import detectable_difference
from regft_core.statistics.ranks import RankSet, rank_sets
from regft_core.statistics.sequential import look
from regft_core.statistics.signed_rank import signed_rank
from regft_core.statistics.verdict import verdict

#: Recorded and recomputed metrics may differ by rounding only.
TOLERANCE = 1e-6


class MethodMeta(Protocol):
    """What the report reads of a method; ``config.method.Method`` has it."""

    @property
    def config(self) -> MethodConfig:
        """Its YAML."""

    @property
    def phases(self) -> Sequence[Any]:
        """All phases; the last one is fine-tuning."""

    @property
    def earlier(self) -> Sequence[Any]:
        """The phases before fine-tuning."""


def controlled_methods(method: str, methods: Mapping[str, MethodMeta], present: Iterable[str]) -> list[str]:
    """The methods that ``method`` controls for, as far as they are part of the grid.

    A variant (``variant_of``) without controls of its own has those of the method that it is a variant of.
    """
    known = [name for name in present if name != method]
    own = set(methods[method].config.control_for)
    having_own = {target for name in (*known, method) for target in methods[name].config.control_for}
    return [
        name
        for name in known
        if name in own or (name not in having_own and own.intersection(methods[name].config.variant_of))
    ]


def opposites(
    method: str, methods: Mapping[str, MethodMeta], names: Sequence[str], reference: str
) -> list[tuple[str, Role, str]]:
    """What ``method`` is compared with among ``names``: (other arm, its role, in what they differ)."""
    controls = [other for other in names if method in controlled_methods(other, methods, names)]
    ingredients = {one: "one ingredient alone" for one in methods[method].config.combines if one in names}
    pairs: list[tuple[str, Role, str]] = []
    if reference in names and method != reference:
        pairs.append((reference, "reference", ""))
    differs = {c: methods[c].config.differs_by for c in controls} | ingredients
    return pairs + [(c, "control", text) for c, text in differs.items() if c != reference]


def ordered(names: Sequence[str], methods: Mapping[str, MethodMeta], reference: str) -> list[str]:
    """The reference first, then methods in the order of the grid, each followed by its controls."""
    targets = {name: controlled_methods(name, methods, names) for name in names}
    parents = {name: found[0] if found else None for name, found in targets.items()}
    found: list[str] = []

    def add(name: str) -> None:
        if name not in found:
            found.append(name)
            for other in names:
                if parents[other] == name:
                    add(other)

    if reference in names:
        found.append(reference)
    for name in names:
        if parents[name] is None:
            add(name)
    for name in names:  # methods that name each other as controls have no root
        add(name)
    return found


def build_block(
    data: BlockData,
    methods: Mapping[str, MethodMeta],
    config: ReportConfig,
    seeds: Sequence[int],
    shared_training: Mapping[str, Any] | None,
    *,
    looks: Looks | None = None,
    blocks: int = 1,
) -> Block:
    """Compute one block of ``blocks``; ``looks`` counts how often its comparisons were looked at.

    Raises:
        DataError: predictions do not give the recorded metrics.
    """
    described = data.described
    sets = {name: described.sets[name].n for name in ["dev", *described.sets]}
    metrics = tuple(described.metrics)
    # A set without any finished run has no gold labels here, and no scores.
    arms = {
        (name, metric): arms_of(data, name, metric, config, seeds)
        for name in sets
        if name in data.gold
        for metric in metrics
    }
    reference = data.cells.get(config.reference)
    if shared_training is None and reference is not None:
        shared_training = reference.finetune.training
    names = ordered(list(data.cells), methods, config.reference)
    rows: list[Row] = []
    for name in names:
        cell = data.cells[name]
        targets = [other for other in controlled_methods(name, methods, names) if name != config.reference]
        pairs = opposites(name, methods, names, config.reference)
        rows.append(
            Row(
                method=name,
                control_for=", ".join(targets) or None,
                differs_by=methods[name].config.differs_by,
                scores={s: {m: _score(data, cell, s, m, arms[s, m]) for m in metrics} for s in sets if s in data.gold},
                failed=tuple((run.seed, run.error or "no error recorded") for run in cell.runs if not run.ok),
                collapsed=tuple(
                    (run.seed, s, what) for run in cell.runs for s in sets if (what := run.collapsed.get(s)) is not None
                ),
                n_expected=len(seeds),
                cost=cost_of(cell, reference),
                variants=tuple(sorted({run.variant for run in cell.runs if run.variant})),
                degraded=tuple(dict.fromkeys(text for run in cell.runs for text in run.degraded)),
                overrides=overrides(cell.finetune.training, shared_training),
                comparisons=tuple(
                    _looked_at(
                        _comparison(data, s, arms[s, described.primary], name, other, role, differs_by),
                        arms[s, described.primary],
                        data,
                        looks,
                        config,
                    )
                    for other, role, differs_by in pairs
                    for s in sets
                    if s in data.gold
                ),
                same_runs_as=_same_runs(data, name, [row.method for row in rows]),
            )
        )
    block = Block(data.task, data.size, described.kind, described.primary, metrics, sets, tuple(rows))
    judged = arms.get(("dev", block.primary))
    if judged is None:  # no run of the block finished
        return block
    opponents = _opponents(data, block, judged, looks, config)
    best = opponents.best if opponents else None
    compared = [c for row in rows for c in row.comparisons] + list(opponents.comparisons if opponents else ())
    # Which arm is picked, and what beats what, was there to be seen at every look at any pair of the block.
    looked = max((c.look.number for c in compared if c.look is not None), default=0)
    registry = discover()
    in_the_way = {
        row.method: in_the_way_of_export(registry, methods[row.method].phases[-1].regularisers) for row in rows
    }
    kept_back = {method: name for method, name in in_the_way.items() if name is not None}
    judging = {name: found for (name, metric), found in arms.items() if metric == block.primary}
    decision = decide(data, rows, judging, best, config, seeds, looked, kept_back)
    return replace(block, opponents=opponents, decision=decision, ranks=_ranks(block, judged, config, blocks))


def _ranks(block: Block, arms: Arms, config: ReportConfig, blocks: int) -> dict[str, RankSet]:
    """Empty for a single block, over which nothing is averaged."""
    finished = [row.method for row in block.rows if row.n_ok]
    if blocks < 2:
        return {}
    upwards = not known_metrics.find(block.primary).lower_is_better
    return rank_sets(arms, finished, confidence=config.confidence, higher_is_better=upwards, sets=blocks)


def _looked_at(c: Comparison, arms: Arms, data: BlockData, looks: Looks | None, config: ReportConfig) -> Comparison:
    """``c``, its look remembered; judged by its look's interval, once there was more than the one that was planned."""
    looked = looks.at(data, c.method, c.other) if looks is not None else None
    if looked is None or c.estimate.n == 0 or (len(looked.seeds) == 1 and config.looks == "planned"):
        return c
    described = known_metrics.find(c.metric)
    found = look(arms, c.method, c.other, looked.number, looked.seeds, config.confidence)
    reach = described.largest_difference
    found = replace(found, low=max(found.low, -reach), high=min(found.high, reach))
    word = verdict(found.low, found.high, c.estimate.n, higher_is_better=not described.lower_is_better)
    return replace(c, look=found, verdict=word)


def _opponents(
    data: BlockData, block: Block, arms: Arms, looks: Looks | None, config: ReportConfig
) -> Opponents | None:
    """The arms that train the encoder against the best that does not; None without such an arm."""
    frozen = [row for row in block.rows if not data.cells[row.method].trains_encoder and row.n_ok]
    if not frozen:
        return None
    sign = -1.0 if known_metrics.find(block.primary).lower_is_better else 1.0
    best = max(frozen, key=lambda row: sign * row.scores["dev"][block.primary].estimate.mean).method
    comparisons = [
        _looked_at(_comparison(data, "dev", arms, row.method, best, "opponent", ""), arms, data, looks, config)
        for row in block.rows
        if data.cells[row.method].trains_encoder and row.n_ok
    ]
    return Opponents(best, len(frozen), tuple(c for c in comparisons if c.estimate.n))


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
            name: {run.seed: run.predictions[set_name] for run in data.cells[name].runs if run.ok}
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
    ok = {run.seed: run for run in cell.runs if run.ok}
    for seed, value in zip(estimate.seeds, estimate.values, strict=True):
        recorded = ok[seed].sets[set_name].metrics[metric]
        if abs(recorded - value) > TOLERANCE:
            raise DataError(
                "scores-differ",
                f"{cell.method} on {data.name}, seed {seed}: the predictions on {set_name} give {metric} {value:.6f}, "
                f"but result.json records {recorded:.6f}"
                f"\n    -> the files below work/evaluate were edited: run `dvc repro`, which writes them again",
            )
    majority = next((run.sets[set_name].majority[metric] for run in ok.values()), math.nan)
    return Score(set_name, metric, estimate, majority)


def _same_runs(data: BlockData, name: str, above: Sequence[str]) -> str | None:
    """The first arm ``above`` whose runs are those of ``name``, seed by seed."""
    keys = {run.seed: run.key for run in data.cells[name].runs}
    same = (other for other in above if {run.seed: run.key for run in data.cells[other].runs} == keys)
    return next(same, None) if keys else None


@lru_cache
def _detectable_at_unit_deviation(n: int, confidence: float) -> float:
    return detectable_difference(n, 1.0, confidence=confidence)


def _detectable(estimate: Estimate) -> float | None:
    if estimate.n < 2:
        return None
    return _detectable_at_unit_deviation(estimate.n, estimate.confidence) * estimate.seed_deviation


def _comparison(
    data: BlockData, set_name: str, arms: Arms, method: str, other: str, role: Role, differs_by: str
) -> Comparison:
    metric = data.described.primary
    described = known_metrics.find(metric)
    reach = described.largest_difference
    estimate = bounded(arms.difference(method, other), -reach, reach)
    mine, theirs = declared(data.cells[method]), declared(data.cells[other])
    return Comparison(
        method=method,
        other=other,
        role=role,
        differs_by=differs_by,
        set=set_name,
        metric=metric,
        estimate=estimate,
        verdict=verdict(estimate.low, estimate.high, estimate.n, higher_is_better=not described.lower_is_better),
        signed_rank=signed_rank(estimate.values) if estimate.n else None,
        adjusted_p=None,
        detectable=_detectable(estimate),
        n_examples=len(data.gold[set_name]),
        identical=arms.identical(method, other),
        examples=estimate.mean * len(data.gold[set_name]) if described.counts_examples and estimate.n else None,
        compute_ratio=mine / theirs if mine and theirs else None,
    )
