"""Each claim of a paper gets one of five words from paired runs, with its interval, its power and its reason."""

from __future__ import annotations

import math
from pathlib import Path
from typing import Any

import pytest

from regft_core.report.claims import _printed, bounds, comparison_in_words
from regft_core.report.paper import Paper
from regft_core.schema.params import ReportConfig
from regft_core.settings.published import PublishedConfig
from regft_core.statistics.bootstrap import seed_interval
from tests.report.synthetic import Arm
from tests.report.test_evaluations import write
from tests.report.test_published import MINILM, PAPER, beside, line, ran

COLUMNS = {"sst2": {"metric": "accuracy"}, "rte": {"metric": "accuracy"}, "average": {"mean_of": ["sst2", "rte"]}}
CLAIM = {"says": "good gains over plain", "where": "section 4", "arm": "good", "over": "vanilla", "columns": "sst2"}


def table(gain: float, **changes: Any) -> dict[str, Any]:
    rows = [line("Plain", "vanilla", 50.0, 50.0), line("Good", "good", 50.0 + gain, 50.0 + gain)]
    for row in rows:
        row["scores"] |= {"average": row["scores"]["sst2"]}
    given = {"columns": COLUMNS, "encoders": {"MiniLM": MINILM}, "rows": rows, "claims": [CLAIM]}
    return {**PAPER, **given, **changes}


@pytest.fixture(scope="module")
def root(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """``good`` is 10 points better than plain fine-tuning, ``third`` hardly at all."""
    arms = {"vanilla": Arm(0.7), "good": Arm(0.8), "third": Arm(0.7005)}
    return ran(tmp_path_factory.mktemp("claims"), arms, 500, 5)


def verdicts(root: Path, given: Any, seeds: int = 5) -> list[Any]:
    return list(beside(root, given, ("vanilla", "good", "third"), seeds).published[0].claims)


def of_third(given: Any) -> Any:
    """The same table, with ``third`` in the place of ``good``."""
    given["rows"][1]["arm"] = "third"
    return {**given, "claims": [{**CLAIM, "arm": "third"}]}


def test_every_word(root: Path) -> None:
    found = {gain: verdicts(root, table(gain))[0] for gain in (2.0, 10.0, 40.0)}
    assert {gain: claim.word for gain, claim in found.items()} == {2: "reproduced", 10: "reproduced", 40: "smaller"}
    # No gain of ``third`` is shown, and half of 40 points is out of reach.
    (small,), (large,) = (verdicts(root, of_third(table(gain))) for gain in (1.0, 40.0))
    assert (small.word, large.word) == ("not shown", "contradicted")
    (turned,) = verdicts(root, table(10.0, claims=[{**CLAIM, "arm": "vanilla", "over": "good"}]))
    assert turned.word == "contradicted"
    (one,) = found[10.0].tested
    assert one.printed.value == pytest.approx(10.0)
    assert (one.seeds, one.detectable > 0) == (5, True)
    assert "80% power from" in comparison_in_words(one, found[10.0])
    (single,) = verdicts(root, table(10.0), seeds=1)
    assert (single.word, single.tested[0].why) == ("not tested here", "one seed shows no spread")
    assert math.isnan(single.tested[0].ours.low)


def test_our_gain_is_that_of_the_report(root: Path) -> None:
    found = beside(root, table(10.0), ("vanilla", "good"), 5)
    (one,) = found.published[0].claims[0].tested
    block = next(block for block in found.blocks if block.task == "sst2")
    row = block.row("good")
    assert row is not None
    (comparison,) = row.against("reference")
    expected = [100 * getattr(comparison.estimate, end) for end in ("mean", "low", "high")]
    assert one.ours is not None
    assert [one.ours.value, one.ours.low, one.ours.high] == pytest.approx(expected)


def test_no_interval_is_longer_than_the_metric(tmp_path: Path) -> None:
    """Two seeds far apart stretched them to hundreds of points."""
    root = ran(tmp_path, {"vanilla": Arm(0.02), "good": Arm(0.98, collapsed=(1,))}, 100, 2)
    given = table(10.0, seeds=2)
    for row in given["rows"]:
        row["deviations"] = {"sst2": 30.0}
    (found,) = beside(root, given, ("vanilla", "good"), 2).published
    (one,) = found.claims[0].tested
    assert [one.ours.low, one.ours.high, one.printed.low, one.printed.high] == pytest.approx([-100, 100, -100, 100])
    beyond = found.rows[1][1][0]
    assert (beyond.published.value, beyond.difference.low, beyond.difference.high) == pytest.approx((60, -60, 40))


def test_columns_of_a_claim_are_all_needed(root: Path) -> None:
    (found,) = verdicts(root, table(10.0, claims=[{**CLAIM, "columns": ["all", "average"]}]))
    assert [one.key for one in found.tested] == ["sst2", "rte", "average"]
    assert found.word == "reproduced"
    parts = [one.ours.value for one in found.tested]
    assert parts[2] == pytest.approx(sum(parts[:2]) / 2)


def test_claims_of_one_table_share_the_error(root: Path) -> None:
    claims = [CLAIM, {**CLAIM, "says": "no such gain", "arm": "vanilla", "over": "third"}]
    given = table(10.0, claims=claims)
    given["rows"].append({**given["rows"][0], "method": "Third", "arm": "third"})
    alone, unshown = verdicts(root, given)
    assert (alone.word, alone.confidence) == ("reproduced", pytest.approx(0.975))
    # The first is decided, so the second has the whole level.
    assert (unshown.word, unshown.confidence) == ("not shown", pytest.approx(0.95))


@pytest.mark.parametrize(
    ("measure", "at_most", "word"),
    [("passes", 4, "reproduced"), ("passes", 0.5, "contradicted"), ("memory", 1, "not tested here")],
)
def test_a_claim_of_cost(root: Path, measure: str, at_most: float, word: str) -> None:
    claim = {key: value for key, value in CLAIM.items() if key != "columns"} | {"measure": measure, "at_most": at_most}
    (found,) = verdicts(root, table(10.0, claims=[claim]))
    (one,) = found.tested
    assert (found.word, one.key) == (word, measure)
    assert one.ours is None if measure == "memory" else math.exp(-one.ours.value) == 1  # both are plain fine-tuning
    assert f"{measure} relative to vanilla: at most {at_most:.2f}×" in comparison_in_words(one, found)


def numbers(**changes: Any) -> dict[str, Any]:
    """A table without rows whose claim is about an evaluation."""
    asked = {"evaluation": "toy", "names": ["gap"], **changes.pop("numbers", {})}
    return table(10.0, rows=[], claims=[{**CLAIM, "sizes": [300], "numbers": asked, **changes}])


@pytest.fixture(scope="module")
def evaluated(root: Path) -> Path:
    """An evaluation in which ``good`` has 0.5 more of ``gap`` than plain fine-tuning, and twice as much of ``most``."""
    for method, more in (("vanilla", 0.0), ("good", 0.5)):
        gaps = {seed: more + 0.1 * (seed % 2) * more + 0.02 * seed for seed in range(5)}
        numbers = {seed: {"gap": gap, "most": 2 * gap + 1, "wide": (seed + 2 * more) % 2} for seed, gap in gaps.items()}
        seeds = {f"seed_{seed}": {"scalars": {"dev": own}} for seed, own in numbers.items()}
        write(root, method, range(5), **seeds)
    return root


@pytest.mark.parametrize(
    ("changes", "word", "gain"),
    [
        ({}, "reproduced", [0.5, 0.55, 0.5, 0.55, 0.5]),
        ({"numbers": {"lower": True}}, "contradicted", [-0.5, -0.55, -0.5, -0.55, -0.5]),
        ({"numbers": {"names": ["wide"]}}, "not shown", [1, -1, 1, -1, 1]),  # from 0 to 1, so the interval is cut
        (
            {"over": "good", "numbers": {"names": ["most"], "than": ["gap"]}},
            "reproduced",
            [1.5, 1.57, 1.54, 1.61, 1.58],
        ),
    ],
)
def test_a_claim_about_numbers_of_an_evaluation(evaluated: Path, changes: Any, word: str, gain: list[float]) -> None:
    (found,) = verdicts(evaluated, numbers(**changes))
    (one,) = found.tested
    assert (found.word, one.seeds) == (word, 5)
    assert one.ours.value == pytest.approx(sum(gain) / 5)
    assert (one.ours.low, one.ours.high) == pytest.approx((-1, 1) if 1 in gain else seed_interval(gain))
    assert bounds(one.ours, free=True) in comparison_in_words(one, found)


def test_a_paper_with_deviations_is_harder_to_contradict(root: Path) -> None:
    given = of_third(table(10.0))
    (exact,) = verdicts(root, given)
    for row in given["rows"]:
        row["deviations"] = {"sst2": 20.0}
    (unsure,) = verdicts(root, given)
    assert (exact.word, unsure.word) == ("contradicted", "not shown")
    assert unsure.tested[0].printed.low < 0 < unsure.tested[0].printed.high


def test_a_printed_gain_is_positive_in_the_claims_direction_where_lower_is_better() -> None:
    given = table(-0.1, columns=COLUMNS | {key: {"metric": "mse"} for key in ("sst2", "rte")})
    paper = Paper(PublishedConfig.model_validate(given), (), ReportConfig(), ())
    found = (_printed(paper.config.claims[0], "vanilla", key, "MiniLM", "300", paper, 0.95) for key in COLUMNS)
    assert [printed and printed.value for printed in found] == pytest.approx([0.1] * 3)
