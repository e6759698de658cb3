"""The numbers of one block: scores, paired comparisons, failures, cost. Statistics come from ``statistics``."""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any

from regft_core import metrics
from regft_core.errors import DataError
from regft_core.evaluate.evaluated import constant_score, positive_of
from regft_core.hooks.compose import in_the_way_of_export, learns
from regft_core.hooks.registry import discover
from regft_core.kinds import find
from regft_core.report.decide import decide
from regft_core.report.facts import cost_of, declared, overrides, plain_cell
from regft_core.report.formatting import point_of, sign
from regft_core.report.looks import Looks
from regft_core.report.read_grid import BlockData, CellData, Inputs
from regft_core.report.values import Block, Comparison, Decision, Pair, Row, Score
from regft_core.schema.params import ReportConfig
from regft_core.settings.controls import Control
from regft_core.statistics.arms import Arms, rank_sets
from regft_core.statistics.bootstrap import bounded
from regft_core.statistics.forecast import shares
from regft_core.statistics.verdict import judge

TOLERANCE = 1e-6


def build_block(data: BlockData, inputs: Inputs, looks: Looks, blocks: int, mixed: Sequence[str]) -> Block:
    """Compute one block of ``blocks``; ``mixed``: who ran where, when its runs come from several environments."""
    methods, config, primary, reference = inputs.methods, inputs.config, data.primary, inputs.config.reference
    arms = {
        name: {m: arms_of(data, name, m, config, inputs.seeds, data.cells) for m in data.described.metrics}
        for name in data.set_rows
    }
    judging = {name: by_metric[primary] for name, by_metric in arms.items()}
    roles = {name: [r for r in as_control(name, inputs) if r.control_for in data.cells] for name in data.cells}
    names = ordered({name: own[0].control_for if own else None for name, own in roles.items()}, reference)
    pairs = [pair for name in names if not data.cells[name].constant for pair in opposites(name, inputs, names)]
    comparisons = compared(data, judging, pairs, looks, config)
    plain, shared = plain_cell(data.cells, reference), inputs.training.get(data.task)
    rows: list[Row] = []
    for name in names:
        cell = data.cells[name]
        keys = [run.key for run in cell.runs]
        row = Row(
            **vars(cell),
            control_for=tuple(roles[name]) if name != reference else (),
            scores={
                place: {metric: _score(data, cell, place, metric, own) for metric, own in by_metric.items()}
                for place, by_metric in arms.items()
            },
            cost=cost_of(cell, plain),
            overrides=overrides(cell.finetune.training, shared.model_dump(mode="json")) if shared else {},
            comparisons=tuple(c for c in comparisons if c.method == name),
            same_runs_as=next((earlier.method for earlier in rows if [run.key for run in earlier.runs] == keys), None),
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
    rows = data.set_rows[set_name]
    return Arms(
        {name: {seed: sets[set_name] for seed, sets in data.cells[name].predictions.items()} for name in names},
        rows.gold,
        metric,
        samples=config.bootstrap_samples,
        confidence=config.confidence,
        positive_label_index=positive_of(data.described, set_name),
        expected_seeds=seeds,
        judged=rows.judged,
        groups=rows.groups,
    )


def _score(data: BlockData, cell: CellData, set_name: str, metric: str, arms: Arms) -> Score:
    estimate = bounded(arms.one(cell.method), *metrics.find(metric).range)
    recorded = {run.seed: run.sets[set_name] for run in cell.runs if run.ok}
    for seed, value in estimate.by_seed.items():
        if not math.isclose(recorded[seed].metrics[metric], value, rel_tol=TOLERANCE, abs_tol=TOLERANCE):
            raise DataError(
                "scores-differ",
                f"{cell.method} on {data.name}, seed {seed}: the predictions on {set_name} give {metric} {value:.6f}, "
                f"but result.json records {recorded[seed].metrics[metric]:.6f}"
                f"\n    -> the files below work/evaluate were edited: run `dvc repro`, which writes them again",
            )
    if not estimate.seeds:
        return Score(set_name, metric, estimate, math.nan)
    rows, positive = data.set_rows[set_name], positive_of(data.described, set_name)
    parts: list[Any] = [slice(None)] if rows.judged is None else [rows.judged[seed] for seed in estimate.seeds]
    majority = constant_score(metric, find(data.described.kind), rows.gold, parts, positive)
    return Score(set_name, metric, estimate, majority)


def as_control(method: str, inputs: Inputs) -> list[Control]:
    """Return what ``method`` controls for; nothing where its own file declares no ``control_for``."""
    if not inputs.methods[method].config.control_for:
        return []
    return [control for control in inputs.controls if control.name == method]


def ordered(parents: Mapping[str, str | None], reference: str) -> list[str]:
    """The reference first, then methods in the order of the grid, each followed by its controls."""
    order: list[str] = [reference] if reference in parents else []

    def add(name: str) -> None:
        if name not in order:
            order.append(name)
            for other, parent in parents.items():
                if parent == name:
                    add(other)

    # Methods that name each other as controls have no root: they come last.
    for name in sorted(parents, key=lambda name: parents[name] is not None):
        add(name)
    return order


def opposites(method: str, inputs: Inputs, names: Sequence[str]) -> Iterator[Pair]:
    own = [one for one in inputs.controls if one.control_for == method and one.name in names]
    reference, zero = inputs.config.reference, {control.name for control in own if control.zero}
    if reference in names and reference != method:
        yield Pair(method, reference, "reference", "", reference in zero)
    for control in sorted(own, key=lambda one: (not one.zero, names.index(one.name))):
        other, text = inputs.methods[control.name], control.differs_by
        if control.name in inputs.methods[method].config.combines:
            text = "one ingredient alone"
        elif not other.config.control_for and not any(phase.regularisers for phase in other.phases):
            text = "plain fine-tuning"
        if control.name != reference:
            yield Pair(method, control.name, "control" if control.zero else "replacement", text, control.zero)


def compared(
    data: BlockData,
    arms: Mapping[str, Arms],
    pairs: Sequence[Pair],
    looks: Looks,
    config: ReportConfig,
    candidates: int = 1,
) -> list[Comparison]:
    """Judge ``pairs`` on every set (of ``arms``), each role of a set as one family.

    ``candidates``: arms that the other side was picked from, which share the error.
    """
    metric, described = data.primary, metrics.find(data.primary)
    reach, finished = described.largest_difference, {name: cell.finished for name, cell in data.cells.items()}
    point = point_of(metric, (arms["dev"].one(name).mean for name in data.cells)) if "dev" in arms else 1.0
    comparisons = []
    for role in dict.fromkeys(pair.role for pair in pairs):
        family = [pair for pair in pairs if pair.role == role]
        looked = [looks.at(pair, data.name, finished[pair.method], finished[pair.other]) for pair in family]
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
                mine, theirs = declared(data.cells[pair.method]), declared(data.cells[pair.other])
                comparison = Comparison(
                    **vars(pair),
                    set=name,
                    metric=metric,
                    estimate=bounded(own.difference(pair.method, pair.other), -reach, reach),
                    verdict=replace(verdict, low=max(verdict.low, -reach), high=min(verdict.high, reach)),
                    n_examples=own.count,
                    compute_ratio=mine / theirs if mine and theirs else None,
                    look=look,
                    sample=sample,
                )
                comparisons.append(comparison)
    return comparisons


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
