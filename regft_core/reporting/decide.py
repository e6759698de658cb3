"""Which method to take in one block: by expected score, with what a cheaper one is expected to cost.

``statistics.decision`` has the rule. Claims stand beside it and come from simultaneous intervals
(``statistics.best``): a decision needs no significance, a claim does.
"""

from __future__ import annotations

import math
from collections.abc import Collection, Mapping, Sequence
from dataclasses import replace

import numpy as np

from regft_core import metrics
from regft_core.config.schema.report import ReportConfig
from regft_core.names import plural
from regft_core.reporting.model import Choice, Decision, Row
from regft_core.reporting.page.formatting import interval, number, ratio, score, some, unit
from regft_core.reporting.read_grid import BlockData
from regft_core.statistics.arms import Arms
from regft_core.statistics.best import against_all
from regft_core.statistics.decision import ASSUMED_SPREAD, beliefs
from regft_core.statistics.sequential import shares

#: A method is called cheaper when it costs less than this share of another: seconds vary by a few per cent.
CHEAPER = 0.95


def decide(
    data: BlockData,
    rows: Sequence[Row],
    arms: Mapping[str, Arms],
    opponent: str | None,
    config: ReportConfig,
    seeds: Sequence[int],
    looks: int = 0,
    without_export: Collection[str] = (),
) -> Decision:
    """Decide for one block.

    Args:
        rows: the block's rows, with their scores.
        arms: set -> its primary metric; ``dev`` and what ``report.decide_by`` names.
        opponent: the best method that does not train the encoder, if there is one.
        seeds: of the grid; the command names the first one.
        looks: number of the look that this is, where seeds were added after one; 0: the one that was planned.
        without_export: methods whose runs no directory can hold; no command is given for them.
    """
    metric = data.described.primary
    entered, left_out = _entering(rows)
    names = [row.method for row in entered]
    baseline = opponent if opponent is not None else config.reference
    judges = config.decide_by or ("dev",)
    found = Decision(
        metric=metric,
        confidence=config.confidence,
        tolerance=config.tolerance,
        judges=judges,
        choices=(),
        left_out=left_out,
        pick=None,
        baseline=baseline if baseline in names else None,
        baseline_frozen=opponent is not None,
        beating=(),
        cost_measured=bool(entered) and all(row.cost.measured is not None for row in entered),
        looks=looks,
    )
    where = f"{data.task} at full size" if data.size == "full" else f"{data.task} at {data.size} rows"
    if not entered:
        return replace(found, sentences=(f"On {where} no method finished every seed, so there is nothing to take.",))
    upwards = not metrics.find(metric).lower_is_better
    observed, resampled = _together([arms[name].table(names) for name in judges])
    point = _point(metric, observed)
    held = beliefs(observed, resampled, point=point, higher_is_better=upwards)
    choices = [
        Choice(
            row.method,
            row.scores["dev"][metric].estimate,
            belief,
            row.cost.measured if found.cost_measured else row.cost.plain,
        )
        for row, belief in zip(entered, held, strict=True)
    ]
    choices.sort(key=lambda c: (c.belief.loss, _or(c.cost)))
    within = [c for c in choices if c.belief.loss <= config.tolerance * point and _cheaper(c, choices[0])]
    pick = min(within, key=lambda c: _or(c.cost), default=choices[0])
    found = replace(found, choices=tuple(choices), pick=pick)
    if found.baseline is not None:
        rest = [name for name in names if name != found.baseline]
        parts = shares(looks) if looks else 1  # of the error that this look may spend
        pairs = against_all(arms["dev"], found.baseline, rest, parts * len(rest), config.confidence)
        # ``pairs`` are the baseline minus the others: the other leads when the sign is turned.
        found = replace(found, beating=tuple(c.b for c in pairs if c.leads(not upwards)))

    def command(name: str) -> str | None:
        if name in without_export:
            return None
        return f"regft export --method {name} --task {data.task} --size {data.size} --seed {seeds[0]}"

    exported = command(pick.method)
    sentences = [*_taken(found, where), *_instead(found), *_claimed(found), *_elsewhere(found, rows, arms, upwards)]
    if exported is None:
        sentences.append(f"{pick.method} has no export: its predictions are in work/evaluate.")
    if left_out:
        sentences.append(f"Left out: {some([f'{method} ({why})' for method, why in left_out])}.")
    return replace(found, sentences=tuple(sentences), commands=() if exported is None else (exported,))


def _together(tables: Sequence[tuple[np.ndarray, np.ndarray]]) -> tuple[np.ndarray, np.ndarray]:
    """The mean over sets; resamples of further sets are shuffled, since sets of one size share theirs."""
    rng = np.random.default_rng(0)
    mixed = [tables[0][1], *(rng.permutation(values) for _, values in tables[1:])]
    return np.mean([observed for observed, _ in tables], axis=0), np.mean(mixed, axis=0)


def _point(metric: str, observed: np.ndarray) -> float:
    """One shown point; of a metric without bounds one per cent of the median score."""
    described = metrics.find(metric)
    if math.isinf(described.largest_difference):
        return 0.01 * (abs(float(np.median(observed))) or 1.0)
    return 1 / described.factor


def _or(value: float | None) -> float:
    return math.inf if value is None else value


def _cheaper(one: Choice, other: Choice) -> bool:
    return one.cost is not None and other.cost is not None and one.cost < CHEAPER * other.cost


def _entering(rows: Sequence[Row]) -> tuple[list[Row], tuple[tuple[str, str], ...]]:
    """Methods that finished every seed; a mean over survivors would favour methods that fail often."""
    left_out = tuple(
        (row.method, f"{len(row.failed)} of {plural(row.n_expected, 'seed')} failed") for row in rows if row.failed
    )
    return [row for row in rows if not row.failed], left_out


# ------------------------------------------------------------------------------------ words


def _taken(found: Decision, where: str) -> list[str]:
    pick, k = found.pick, len(found.choices)
    assert pick is not None
    bounds = f" {interval((pick.score.low, pick.score.high), found.metric)}" if pick.score.n > 1 else ""
    text = (
        f"On {where}, take {pick.method}: {found.metric} {score(pick.score.mean, found.metric)}{bounds}, "
        f"mean of {plural(pick.score.n, 'seed')}."
    )
    if k == 1:
        return [text, "No other method finished every seed."]
    basis = "" if found.judges == ("dev",) else f", judged by {some(list(found.judges))}"
    sentences = [
        text,
        f"Expected on new data: {score(pick.belief.expected, found.metric)}{basis}. "
        f"Probability of being the best of {k}: {number(100 * pick.belief.best, 0)}%.",
    ]
    if pick.score.n == 1:
        assumed = number(ASSUMED_SPREAD, 0)
        sentences.append(f"One seed shows no spread; {assumed} points are assumed. Add seeds before you rely on it.")
    leader = found.choices[0]
    if leader.method != pick.method:
        sentences.append(
            f"{leader.method} has the best expected score, but {pick.method} is cheaper ({_costs(pick, found)} against "
            f"{ratio(leader.cost)}) and loses {_points(pick.belief.loss, found)}, "
            f"within the tolerance of {number(found.tolerance, 1)}."
        )
    return sentences


def _instead(found: Decision) -> list[str]:
    """What the frozen encoder (or the reference) would cost; else the next best method."""
    assert found.pick is not None
    others = [c for c in found.choices if c.method != found.pick.method]
    other = next((c for c in others if c.method == found.baseline), others[0] if others else None)
    if other is None:
        return []
    lost = other.belief.loss - found.pick.belief.loss
    change = (
        f"is expected to lose {_points(lost, found)}" if lost >= 0 else f"is expected to gain {_points(-lost, found)}"
    )
    cost = f" and costs {_costs(other, found)} against {ratio(found.pick.cost)}" if other.cost is not None else ""
    return [f"Taking {other.method} instead {change}{cost}."]


def _points(value: float, found: Decision) -> str:
    return f"{score(value, found.metric)} {unit(found.metric)}"


def _costs(c: Choice, found: Decision) -> str:
    to = "the reference" if found.cost_measured else "plain fine-tuning"
    return f"{ratio(c.cost)} {to}" if c.cost is not None else "an unknown share"


def _claimed(found: Decision) -> list[str]:
    if found.baseline is None or len(found.choices) < 2:
        return []
    level = f"{number(100 * found.confidence, 0)}%, corrected for all comparisons"
    if found.looks > 1:
        level += f" and all {found.looks} looks"
    role = "the best method that does not train the encoder" if found.baseline_frozen else "the reference"
    if not found.beating:
        return [f"Not established: that any method beats {found.baseline}, {role} ({level})."]
    verb = "beats" if len(found.beating) == 1 else "beat"
    return [f"Established: {some(list(found.beating))} {verb} {found.baseline}, {role} ({level})."]


def _elsewhere(found: Decision, rows: Sequence[Row], arms: Mapping[str, Arms], upwards: bool) -> list[str]:
    """Sets on which the pick is below a constant answer, or shown to be worse than the baseline."""
    assert found.pick is not None
    row = next(row for row in rows if row.method == found.pick.method)
    others = [name for name in row.scores if name != "dev"]
    said = []
    for name in others:
        own = row.scores[name][found.metric]
        worst = own.estimate.high < own.majority if upwards else own.estimate.low > own.majority
        theirs = ""
        behind = False
        if found.baseline not in (None, row.method):
            assert found.baseline is not None
            (pair,) = against_all(arms[name], found.baseline, [row.method], len(others), found.confidence)
            behind = pair.leads(upwards)
            theirs = f"; {found.baseline} has {score(arms[name].one(found.baseline).mean, found.metric)}"
        if own.estimate.n > 1 and (worst or behind):
            what = "below a constant answer" if worst else f"worse than {found.baseline}"
            said.append(f"On {name} it is {what}: {score(own.estimate.mean, found.metric)}{theirs}.")
    return said
