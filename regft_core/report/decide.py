"""Which method to take in one block: by expected score, with what a cheaper one is expected to lose.

Costs are declared passes. Measured seconds decide nothing, so that a run gives the same decision on every machine.
``statistics.decision`` has the rule. Claims stand beside it and are the verdicts of ``statistics.verdict``.
"""

from __future__ import annotations

import math
from collections.abc import Collection, Mapping, Sequence
from dataclasses import replace

import numpy as np

from regft_core import metrics
from regft_core.names import plural
from regft_core.report import sentences
from regft_core.report.formatting import listed, point_of
from regft_core.report.values import Block, Choice, Comparison, Decision
from regft_core.schema.params import ReportConfig
from regft_core.statistics.arms import Arms
from regft_core.statistics.decision import FEWEST_ROWS, Belief, beliefs, of_all_rows, taken
from regft_core.statistics.verdict import GAIN


def decide(
    block: Block,
    arms: Mapping[str, Arms],
    config: ReportConfig,
    seeds: Sequence[int],
    without_export: Collection[str] = (),
    fixed: Collection[str] = (),
) -> Decision:
    """Decide for one block, among the methods that finished every seed.

    A mean over survivors would favour methods that fail often.

    Args:
        block: with its comparisons.
        arms: set -> its primary metric; ``dev`` and what ``report.decide_by`` names.
        seeds: of the grid; the command names the first one.
        without_export: methods whose runs no directory can hold; no command is given for them.
        fixed: methods that more rows would not change.
    """
    # Methods that share their runs are one choice.
    entered = [row for row in block.rows if not row.failed and row.same_runs_as is None]
    left_out = tuple(
        (row.method, f"{len(row.failed)} of {plural(len(row.runs), 'seed')} failed") for row in block.rows if row.failed
    )
    left_out += tuple((name, "no result") for name in block.absent)
    if not entered:
        return Decision((f"On {block.title} no method finished every seed, so there is nothing to take.",), left_out)
    metric, names, judges = block.primary, [row.method for row in entered], config.decide_by or ("dev",)
    others = [] if config.decide_by else [n for n, own in arms.items() if n != "dev" and own.count >= FEWEST_ROWS]
    tables = {name: arms[name].table(names) for name in (*judges, *others)}
    point = point_of(metric, np.concatenate([tables[name][0].ravel() for name in judges]))

    def held(sets: Sequence[str]) -> list[Belief]:
        """On the mean over sets; resamples of further sets are shuffled, since sets of one size share theirs."""
        rng, draws = np.random.default_rng(0), [tables[name][1] for name in sets]
        resampled = np.mean([draws[0], *(rng.permutation(values) for values in draws[1:])], axis=0)
        observed = np.mean([tables[name][0] for name in sets], axis=0)
        upwards, (lowest, highest) = metrics.higher_is_better(metric), metrics.find(metric).range
        found = beliefs(observed, resampled, point=point, confidence=config.confidence, higher_is_better=upwards)
        return [replace(one, low=max(one.low, lowest), high=min(one.high, highest)) for one in found]

    held_here = held(judges)
    grows = block.size == "full" and tuple(judges) == ("dev",)  # the exported model has more rows than those of folds
    share, perfect = arms["dev"].trained if grows else 1.0, metrics.find(metric).range[metrics.higher_is_better(metric)]
    held_here = [
        b if name in fixed else of_all_rows(b, share, perfect) for b, name in zip(held_here, names, strict=True)
    ]
    elsewhere = held(others) if others else [None] * len(entered)
    choices = [
        Choice(
            row.method,
            row.scores["dev"][metric].estimate,
            belief,
            row.cost.declared,
            tuple(other.method for other in block.rows if other.same_runs_as == row.method),
            beyond,
        )
        for row, belief, beyond in zip(entered, held_here, elsewhere, strict=True)
    ]
    choices.sort(key=lambda c: (c.belief.loss, _or_infinite(c.cost)))
    constant = {row.method for row in block.rows if row.constant}
    pick, usual = _pick(choices, config.tolerance * point, config.prefer, constant)
    best = block.frozen or config.reference
    baseline = best if best in names else None
    claims = _claims(block, baseline)
    places = {name: place for place, c in enumerate(choices) for name in (c.method, *c.same)}
    against = sorted((c for c in claims if c.set == "dev" and c.method in places), key=lambda c: places[c.method])
    beating = tuple(c.method for c in against if c.verdict.word == GAIN)
    by_name = {row.method: row for row in entered}
    # The model of a fold was not trained on the rows that it was evaluated on.
    which = "--refit" if block.described.folded else f"--seed {seeds[0]}"
    command = f"regft export --method {pick.method} --task {block.task} --size {block.size} {which}"
    exported = pick.method not in without_export
    rivals = [c for c in choices if c is not pick and c.method not in constant]
    left_text = f"Left out: {listed([f'{method} ({why})' for method, why in left_out])}. Fix the cause and run again."
    text = (
        *sentences.taken(block, choices, pick, usual, config, share),
        *sentences.weak(block, by_name[pick.method], by_name.get(baseline or ""), claims),
        *sentences.instead(pick, rivals, baseline, metric),
        *sentences.claimed(block, baseline, beating, against, config.confidence),
        *([] if exported else [f"{pick.method} has no export: its predictions are in work/evaluate."]),
        left_text if left_out else "No run failed.",
    )
    return Decision(text, left_out, tuple(choices), pick, baseline, beating, command * exported)


def _pick(
    choices: Sequence[Choice], allowed: float, prefer: str | None = None, constant: Collection[str] = ()
) -> tuple[Choice, Choice]:
    """(the choice to take, what the judging sets alone would take).

    Within the tolerance that is the cheapest, or in its place ``prefer``, where it is better than a constant answer.
    They differ where another choice within the tolerance is better on out-of-distribution sets by more than it; of
    several, the cheapest that is within the tolerance of the best there.
    """
    costs = {c.method: _or_infinite(c.cost) for c in choices}
    losses = [c.belief.loss for c in choices]
    usual = choices[taken(losses, list(costs.values()), 0.0 if prefer else allowed)]
    least = min((c.belief.loss for c in choices if c.method in constant), default=math.inf)
    within = (c for c in choices if c.belief.loss <= allowed and c.belief.loss < least)
    usual = next((c for c in within if prefer in (c.method, *c.same)), usual)
    beyond = {c.method: c.elsewhere.loss for c in choices if c.elsewhere is not None and c.belief.loss <= allowed}
    better = [c for c in choices if c.method in beyond and beyond[usual.method] - beyond[c.method] > allowed]
    near = [c for c in better if beyond[c.method] - min(beyond.values()) <= allowed]
    return min(near, key=lambda c: (costs[c.method], c.belief.loss), default=usual), usual


def _claims(block: Block, baseline: str | None) -> list[Comparison]:
    """The comparisons with the baseline; with a frozen encoder those of arms that train theirs."""
    rows = [row for row in block.rows if block.frozen is None or row.finetune.trains_encoder]
    return [c for row in rows for c in (*row.comparisons, *row.opposed) if c.estimate.n and c.other == baseline]


def _or_infinite(value: float | None) -> float:
    return math.inf if value is None else value
