"""Which arm to take, said as carefully as the data allow.

The arm with the best mean is picked after looking at all of them, so every comparison with it is
simultaneous (``statistics.best``), and arms that cannot be told from it are named with what they
cost. Only the primary metric of the development set counts; nothing here looks at single seeds.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence
from dataclasses import replace

from regft_core import metrics
from regft_core.names import plural
from regft_core.reporting.model import Contender, Cost, Recommendation, Row
from regft_core.reporting.page.formatting import interval, number, ratio, score, some, unit
from regft_core.reporting.read_grid import BlockData
from regft_core.statistics.arms import Arms
from regft_core.statistics.best import Simultaneous, against_all
from regft_core.statistics.sequential import shares

#: With fewer seeds of both arms an interval that holds for all comparisons at once says nothing.
FEWEST_SEEDS = 3
#: An arm is called cheaper when it costs less than this share of another: seconds vary by a few per cent.
CHEAPER = 0.95


def recommend(
    data: BlockData,
    rows: Sequence[Row],
    arms: Arms,
    opponent: str | None,
    reference: str,
    confidence: float,
    seeds: Sequence[int],
    looks: int = 0,
    without_export: Collection[str] = (),
) -> Recommendation:
    """Compute the recommendation of one block.

    Args:
        rows: the block's rows, with their scores.
        arms: the primary metric of the development set.
        opponent: the best arm that does not train the encoder, if there is one.
        reference: the method that others have to beat when there is no such arm.
        confidence: of all comparisons of the block together.
        seeds: of the grid; the command names the first one.
        looks: number of the look that this is, where seeds were added after one; 0: the one that was planned.
        without_export: arms whose runs no directory can hold; no command is given for them.
    """
    metric = data.described.primary
    upwards = not metrics.find(metric).lower_is_better
    entered, left_out = _entering(rows)
    measured = all(row.cost.measured is not None for row in entered)
    costs = {row.method: _cost(row.cost, measured) for row in entered}
    names = tuple(costs)
    baseline = opponent if opponent is not None else reference
    found = Recommendation(
        metric=metric,
        confidence=confidence,
        compared=names,
        left_out=left_out,
        best=None,
        alike=(),
        baseline=baseline if baseline in costs else None,
        baseline_frozen=opponent is not None,
        beating=(),
        cost_measured=measured,
        looks=looks,
    )
    where = f"{data.task} at full size" if data.size == "full" else f"{data.task} at {data.size} rows"
    if len(names) < 2:
        alone = {why for _, why in left_out} == {"one seed"}
        why = "one seed shows no spread" if alone else "fewer than two arms finished every seed"
        return replace(found, sentences=(f"On {where}, nothing is recommended: {why}.",))

    def contender(name: str, behind: Simultaneous | None) -> Contender:
        return Contender(name, estimates[name], costs[name], behind)

    def command(name: str) -> str | None:
        if name in without_export:
            return None
        return f"python -m stages.export --method {name} --task {data.task} --size {data.size} --seed {seeds[0]}"

    estimates = {row.method: row.scores["dev"][metric].estimate for row in entered}
    sign = 1.0 if upwards else -1.0
    reach = metrics.find(metric).largest_difference
    unknown = float("inf")
    best = max(names, key=lambda name: (sign * estimates[name].mean, -_or(costs[name], unknown)))
    others = [name for name in names if name != best]
    parts = shares(looks) if looks else 1  # of the error that this look may spend
    compared = against_all(arms, best, others, parts * len(others), confidence)
    alike = [contender(c.b, _bounded(c, reach)) for c in compared if not c.leads(upwards)]
    beating: tuple[str, ...] = ()
    if found.baseline is not None:
        rest = [name for name in names if name != found.baseline]
        pairs = against_all(arms, found.baseline, rest, parts * len(rest), confidence)
        # ``pairs`` are the baseline minus the others: the other leads when the sign is turned.
        beating = tuple(c.b for c in pairs if c.leads(not upwards))
    found = replace(
        found,
        best=contender(best, None),
        alike=tuple(sorted(alike, key=lambda c: _or(c.cost, unknown))),
        beating=beating,
    )
    return _worded(found, where, command)


def _bounded(c: Simultaneous, reach: float) -> Simultaneous:
    """The interval within what a difference can be: few seeds stretch it far beyond."""
    return replace(c, low=max(c.low, -reach), high=min(c.high, reach))


def _or(value: float | None, otherwise: float) -> float:
    return otherwise if value is None else value


def _cost(cost: Cost, measured: bool) -> float | None:
    return cost.measured if measured else cost.declared


def _entering(rows: Sequence[Row]) -> tuple[list[Row], tuple[tuple[str, str], ...]]:
    """Arms that finished every seed; a mean over survivors would favour arms that fail often."""
    entered, left_out = [], []
    for row in rows:
        if row.failed:
            left_out.append((row.method, f"{len(row.failed)} of {plural(row.n_expected, 'seed')} failed"))
        elif row.n_expected < 2:
            left_out.append((row.method, "one seed"))
        else:
            entered.append(row)
    return entered, tuple(left_out)


def _worded(found: Recommendation, where: str, command: Callable[[str], str | None]) -> Recommendation:
    """Fill in what the page and the terminal say; ``command`` exports an arm, None where it has no export."""
    assert found.best is not None
    best, k = found.best, len(found.compared)
    together = f"all comparisons and all {found.looks} looks" if found.looks > 1 else "all comparisons"
    level = f"at {number(100 * found.confidence, 0)} % for {together} together"
    sentences = [
        f"On {where}, {best.method} has the best mean {found.metric} of {k} arms: {_scored(best, found.metric)}"
        f"{_costs(best, found)}. It was picked after looking at all {k}, so expect a little less of it on new data.",
        _alike(found, level),
        *_beaten(found, level),
    ]
    named = [best.method]
    cheaper = _cheaper(found)
    if found.baseline is not None and not found.beating:
        sentences.append(f"So the data give no reason to take anything but {found.baseline}.")
        named = [found.baseline]
    elif cheaper:
        # What also beats the baseline comes first: the rest has only not been told from the picked arm.
        first = next((c for c in cheaper if c.method in found.beating), cheaper[0])
        if first.method == found.baseline:
            though = f", though {_who_beats(found)} it"
        elif found.baseline is not None and first.method not in found.beating:
            though = f", though it is itself not shown to beat {found.baseline}"
        else:
            though = ""
        sentences.append(f"Where cost matters: {first.method} at {ratio(first.cost)} the reference's{though}.")
        named.append(first.method)
    commands = {name: command(name) for name in named}
    if unheld := [name for name in named if commands[name] is None]:
        verb = "has" if len(unheld) == 1 else "have"
        sentences.append(f"{some(unheld)} {verb} no export: the predictions are in work/evaluate.")
    if found.left_out:
        sentences.append(f"Left out: {some([f'{method} ({why})' for method, why in found.left_out])}.")
    return replace(found, sentences=tuple(sentences), commands=tuple(filter(None, commands.values())))


def _scored(c: Contender, metric: str) -> str:
    bounds = interval((c.estimate.low, c.estimate.high), metric)
    return f"{score(c.estimate.mean, metric)} {bounds} over {plural(c.estimate.n, 'seed')}"


def _costs(c: Contender, found: Recommendation) -> str:
    kind = "measured" if found.cost_measured else "declared"
    return f", {kind} cost {ratio(c.cost)} the reference" if c.cost is not None else ", cost unknown"


def _cheaper(found: Recommendation) -> list[Contender]:
    assert found.best is not None
    limit = found.best.cost
    return [c for c in found.alike if limit is not None and c.cost is not None and c.cost < CHEAPER * limit]


def _alike(found: Recommendation, level: str) -> str:
    if not found.alike:
        return f"It leads every other arm ({level})."
    cheaper = _cheaper(found)
    text = f"{some([c.method for c in found.alike])} cannot be told from it ({level})"
    if len(found.alike) == 1:
        (only,) = found.alike
        lead = _behind(only, found.metric)
        return f"{text} and {f'costs {ratio(only.cost)}' if cheaper else 'is not clearly cheaper'}; {lead}."
    if not cheaper:
        return f"{text}; none of them is clearly cheaper."
    shown = [f"{c.method} ({ratio(c.cost)}; {_behind(c, found.metric)})" for c in cheaper]
    return f"{text}; cheaper among them: {some(shown, 4)}."


def _behind(c: Contender, metric: str) -> str:
    assert c.behind is not None
    if c.behind.n < FEWEST_SEEDS:
        return f"the lead over it: too few seeds to say ({plural(c.behind.n, 'seed')})"
    bounds = interval((c.behind.low, c.behind.high), metric, signed=True)
    return f"the lead over it is {score(c.behind.mean, metric, signed=True)} {unit(metric)} {bounds}"


def _beaten(found: Recommendation, level: str) -> list[str]:
    if found.baseline is None:
        return []
    role = "the best arm that does not train the encoder" if found.baseline_frozen else "the reference"
    if not found.beating:
        return [f"No evidence that anything beats {found.baseline}, {role} ({level})."]
    return [f"{_who_beats(found)} {found.baseline}, {role}."]


def _who_beats(found: Recommendation) -> str:
    """``lora beats``, ``lora and tdt beat``."""
    return f"{some(list(found.beating))} beat{'s' if len(found.beating) == 1 else ''}"
