"""Each claim of a paper gets one of five words from paired runs, with its interval, its power and its reason."""

from __future__ import annotations

import math
from pathlib import Path
from typing import Any

import pytest

from regft_core.report.published import words
from tests.report.test_published import report as beside

MINILM = {"model": "all-MiniLM-L6-v2", "source": "the paper"}
COLUMNS = {
    "sst2": {"metric": "accuracy"},
    "rte": {"metric": "accuracy"},
    "average": {"mean_of": ["sst2", "rte"]},
}
CLAIM = {"says": "good gains over plain", "where": "section 4", "arm": "good", "over": "vanilla", "columns": "sst2"}


def table(gain: float, **changes: Any) -> dict[str, Any]:
    plain = {"method": "Plain", "arm": "vanilla", "encoder": "M", "size": 300, "scores": {"sst2": 50.0, "rte": 50.0}}
    good = {**plain, "method": "Good", "arm": "good", "scores": {"sst2": 50.0 + gain, "rte": 50.0 + gain}}
    for row in (plain, good):
        row["scores"] |= {"average": row["scores"]["sst2"]}
    base = {"paper": "A paper", "table": "1", "what": "two tasks", "seeds": 5, "statistic": "mean", "columns": COLUMNS}
    return {**base, "encoders": {"M": MINILM}, "rows": [plain, good], "claims": [CLAIM], **changes}


def report(synthetic: Any, root: Path, given: Any, skills: Any = (0.7, 0.8), seeds: int = 5, **arms: Any) -> Any:
    every = {"vanilla": synthetic.Arm(skills[0]), "good": synthetic.Arm(skills[1]), **arms}
    (root / "pipelines" / "methods").mkdir(parents=True)
    (root / "pipelines" / "methods" / "third.yaml").write_text("")
    return beside(synthetic, root, every, given, 1000, seeds)


def verdicts(*args: Any, **kwargs: Any) -> list[Any]:
    return list(report(*args, **kwargs).published[0].claims)


@pytest.mark.parametrize(
    ("gain", "skills", "word"),
    [
        (10.0, (0.7, 0.8), "reproduced"),
        (2.0, (0.7, 0.8), "reproduced"),
        (40.0, (0.7, 0.8), "smaller"),
        (10.0, (0.8, 0.7), "contradicted"),
        (40.0, (0.7, 0.7005), "contradicted"),  # no gain is shown, and half of the printed one is out of reach
        (1.0, (0.7, 0.7005), "not shown"),
    ],
)
def test_every_word(synthetic: Any, tmp_path: Path, gain: float, skills: tuple[float, float], word: str) -> None:
    (found,) = verdicts(synthetic, tmp_path, table(gain), skills)
    assert found.word == word
    (one,) = found.tested
    assert one.printed.value == pytest.approx(gain)
    assert one.ours.low <= one.ours.value <= one.ours.high
    assert one.seeds == 5
    assert one.detectable > 0
    assert "80% power from" in words.judged(one, found)


def test_our_gain_is_that_of_the_report(synthetic: Any, tmp_path: Path) -> None:
    found = report(synthetic, tmp_path, table(10.0))
    (one,) = found.published[0].claims[0].tested
    block = next(block for block in found.blocks if block.task == "sst2")
    (comparison,) = block.row("good").against("reference")
    assert one.ours.value == pytest.approx(100 * comparison.estimate.mean)
    assert one.ours.low == pytest.approx(100 * comparison.estimate.low)
    assert one.ours.high == pytest.approx(100 * comparison.estimate.high)


def test_one_seed_gives_no_verdict(synthetic: Any, tmp_path: Path) -> None:
    (found,) = verdicts(synthetic, tmp_path, table(10.0), seeds=1)
    assert found.word == "not tested here"
    assert found.tested[0].why == "one seed shows no spread"
    assert math.isnan(found.tested[0].ours.low)


def test_columns_of_a_claim_are_all_needed(synthetic: Any, tmp_path: Path) -> None:
    given = table(10.0, claims=[{**CLAIM, "columns": ["all", "average"]}])
    (found,) = verdicts(synthetic, tmp_path, given)
    assert [one.key for one in found.tested] == ["sst2", "rte", "average"]
    assert found.word == "reproduced"
    average = found.tested[2]
    assert average.ours.value == pytest.approx(sum(one.ours.value for one in found.tested[:2]) / 2)


def test_claims_of_one_table_share_the_error(synthetic: Any, tmp_path: Path) -> None:
    claims = [CLAIM, {**CLAIM, "says": "no such gain", "arm": "vanilla", "over": "third"}]
    given = table(10.0, claims=claims)
    given["rows"].append({**given["rows"][0], "method": "Third", "arm": "third"})
    alone, unshown = verdicts(synthetic, tmp_path, given, third=synthetic.Arm(0.7001))
    assert (alone.word, alone.confidence) == ("reproduced", pytest.approx(0.975))
    # The first is decided, so the second has the whole level.
    assert (unshown.word, unshown.confidence) == ("not shown", pytest.approx(0.95))


def test_encoders_and_sizes_that_are_not_here_are_listed(synthetic: Any, tmp_path: Path) -> None:
    given = table(10.0, encoders={"M": MINILM, "B": {"model": "google-bert/bert-large-cased", "source": "the paper"}})
    given["rows"] += [{**row, "encoder": "B"} for row in given["rows"]]
    (found,) = verdicts(synthetic, tmp_path, given)
    assert (found.encoder, found.elsewhere, found.word) == ("M", ("B",), "reproduced")
    assert "also claimed of B, not judged here" in words.claimed(found)


def test_a_claim_of_smaller_deviations(synthetic: Any, tmp_path: Path) -> None:
    given = table(10.0, claims=[{**CLAIM, "measure": "deviation"}])
    for row, deviation in zip(given["rows"], (4.0, 1.0), strict=True):
        row["deviations"] = {"sst2": deviation}
    (found,) = verdicts(synthetic, tmp_path, given)
    (one,) = found.tested
    assert one.printed.value == pytest.approx(math.log(4))
    assert one.ours.low < one.ours.value < one.ours.high
    assert "deviation relative to vanilla: printed 0.25×" in words.judged(one, found)


def test_a_paper_with_deviations_is_harder_to_contradict(synthetic: Any, tmp_path: Path) -> None:
    given = table(10.0)
    (exact,) = verdicts(synthetic, tmp_path / "a", given, (0.7, 0.7005))
    for row in given["rows"]:
        row["deviations"] = {"sst2": 20.0}
    (unsure,) = verdicts(synthetic, tmp_path / "b", given, (0.7, 0.7005))
    assert (exact.word, unsure.word) == ("contradicted", "not shown")
    assert unsure.tested[0].printed.low < 0 < unsure.tested[0].printed.high
