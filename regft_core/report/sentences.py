"""The decision of a block in sentences, and looks at its comparisons; verdicts come from intervals alone."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from regft_core.names import plural
from regft_core.report.formatting import interval, listed, number, points, ratio, score
from regft_core.report.values import Block, Choice, Comparison, Row
from regft_core.schema.params import ReportConfig
from regft_core.statistics.verdict import BELOW, GAIN, LOSS, NONE, USUAL_SPREAD, overall


def detectable(c: Comparison) -> str:
    """The true difference that these seeds and rows detect 80% of the time, or why there is no such number."""
    if c.sample.identical:
        return f"identical answers to all {c.n_examples} rows"
    return score(c.verdict.detectable, c.metric)


def _below(block: Block, row: Row) -> dict[str, str]:
    """Set -> that the method is no better than a constant answer there, by which metrics."""
    low = row.no_better(block.primary).items()
    return {name: BELOW + ("" if block.primary in by else f" (by {listed(by)})") for name, by in low}


# ------------------------------------------------------------------------------------------- looks


def looks(c: Comparison) -> str:
    """How often a comparison was looked at; empty for the one planned look."""
    if c.look is None:
        return ""
    seeds = f"{listed([str(n) for n in c.look.seeds])} {'seed' if c.look.seeds == (1,) else 'seeds'}"
    if len(c.look.seeds) == 1:
        return f"look 1 at {seeds}, with an interval that allows for more"
    return f"look {c.look.number} of {len(c.look.seeds)} (at {seeds})"


def looked_at(blocks: Sequence[Block]) -> Iterator[str]:
    """One sentence per block whose comparisons were looked at more than once, or may be."""
    for block in blocks:
        looks = [c.look for row in block.rows for c in row.comparisons if c.set == "dev" and c.look is not None]
        if not looks:
            continue
        seeds = max((look.seeds for look in looks), key=len)
        text = "seeds may be added later (report.looks: open)"
        if len(seeds) > 1:
            at = listed([str(n) for n in seeds])
            text = f"seeds were added or changed after a look ({len(seeds)} looks, at {at} seeds)"
        yield f"{block.name}: {text}; verdicts come from wider intervals that hold over all looks"


# ----------------------------------------------------------------------------------------- decision


def taken(
    block: Block,
    choices: Sequence[Choice],
    pick: Choice,
    usual: Choice,
    config: ReportConfig,
    share: float = 1.0,
) -> Iterator[str]:
    """Which method is taken, what to expect of it, and why it is not the one with the best expected score.

    Args:
        usual: the choice without out-of-distribution sets.
        share: of all rows that the evaluated models were trained on; below 1 the expected score is of all rows.
    """
    metric, leader = block.primary, choices[0]
    mean = f"{metric} {score(pick.score.mean, metric)}, mean of {plural(pick.score.n, 'seed')}"
    yield f"On {block.title}, take {pick.method}: {mean}."
    bounds = f" {interval(pick.interval, metric)}" if pick.interval else ""
    basis = f", by {listed(list(config.decide_by))}" if config.decide_by not in (None, (), ("dev",)) else ""
    trained, lucky = " of the model of all rows" if share < 1 else "", ""
    if len(choices) > 1:
        best = number(100 * pick.belief.best, 0)
        lucky = f": the best of several is usually a little lucky. With a probability of {best}% it is the best of "
        lucky += str(len(choices))
    yield f"Expect {score(pick.belief.expected, metric)}{bounds}{trained} on new data{basis}{lucky}."
    if pick.score.n == 1:
        yield (
            f"One seed shows no spread; a standard deviation of about {number(USUAL_SPREAD, 1)} points is assumed. "
            "Add seeds before you rely on it."
        )
    lost = f"{points(pick.belief.loss, metric)}, within the tolerance of {number(config.tolerance, 1)}"
    if pick is not usual and pick.elsewhere is not None and usual.elsewhere is not None:
        gained = points(usual.elsewhere.loss - pick.elsewhere.loss, metric)
        yield (
            f"Without out-of-distribution sets it would be {usual.method}: {pick.method} is expected to be {gained} "
            f"better on them, and to lose to the best here {lost}."
        )
    elif leader is not pick:
        preferred = config.prefer in (pick.method, *pick.same)
        why = "is preferred (report.prefer)" if preferred else f"takes {_passes(pick)} against {ratio(leader.cost)}"
        yield f"{leader.method} has the best expected score, but {pick.method} {why} and loses {lost}."
    if pick.same:
        yield f"The same runs as {pick.method}: {listed(list(pick.same))}."


def _passes(c: Choice) -> str:
    return "an unknown number of passes" if c.cost is None else f"{ratio(c.cost)} the passes of plain fine-tuning"


def weak(block: Block, pick: Row, baseline: Row | None, claims: Sequence[Comparison]) -> Iterator[str]:
    """Where the pick is no better than a constant answer, or has lost against the baseline.

    Args:
        claims: comparisons with the baseline on all sets.
    """
    metric, below = block.primary, _below(block, pick)
    lost = {c.set for c in claims if c.method == pick.method and c.verdict.word == LOSS}
    if pick.constant:
        yield "No method is better than a constant answer: these rows teach none of them anything."
    if "dev" in below:
        yield f"{pick.method} is {below['dev']}."
    for name in (name for name in pick.scores if name != "dev" and (name in below or name in lost)):
        text = f"On {name} {pick.method} scores {score(pick.scores[name][metric].estimate.mean, metric)}"
        text += f", {below[name]}" if name in below else ""
        if baseline and baseline is not pick:
            text += f"; {baseline.method} scores {score(baseline.scores[name][metric].estimate.mean, metric)}"
        yield f"{text}."


def instead(pick: Choice, others: Sequence[Choice], baseline: str | None, metric: str) -> Iterator[str]:
    """The cost of taking the frozen encoder (or the reference) instead, else the next best."""
    if not others:
        return
    other = next((c for c in others if baseline in (c.method, *c.same)), others[0])
    name = baseline if baseline in other.same else other.method
    lost = other.belief.loss - pick.belief.loss
    change = f"is expected to {'lose' if lost >= 0 else 'gain'} {points(abs(lost), metric)}"
    differs = other.cost is not None and ratio(other.cost) != ratio(pick.cost)
    cost = f" and takes {_passes(other)} against {ratio(pick.cost)}" if differs else ""
    yield f"Taking {name} instead {change}{cost}."


def claimed(
    block: Block, baseline: str | None, beating: Sequence[str], against: Sequence[Comparison], confidence: float
) -> Iterator[str]:
    """Which methods beat the baseline, and which beat all of their controls."""
    if against:
        role = "the reference" if block.frozen is None else "the best method that does not train the encoder"
        first, level = against[0], f"{number(100 * confidence, 0)}%"
        if first.verdict.comparisons > 1:
            level += f", corrected for {first.verdict.comparisons} comparisons"
        if first.look is not None and first.look.number > 1:
            level += f" and {first.look.number} looks"
        if beating:
            yield f"{listed(list(beating), 3)} {'beats' if len(beating) == 1 else 'beat'} {baseline}, {role} ({level})."
        else:
            basis = first.verdict.why if all(c.verdict.word == NONE for c in against) else level
            yield f"No method is shown to beat {baseline}, {role} ({basis})."
    words = {row.method: overall(c.verdict.word for c in row.against("control")) for row in block.rows}
    judged = {name: word for name, word in words.items() if word not in (None, NONE)}
    if judged:
        winners = [name for name, word in judged.items() if word == GAIN]
        verb = "beat" if len(winners) > 1 else "beats"
        yield f"Of {plural(len(judged), 'method')} with a control, {listed(winners, 3) or 'none'} {verb} it."
