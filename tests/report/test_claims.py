"""Each claim of a paper gets one of five words from paired runs, with its interval, its power and its reason."""

from __future__ import annotations

import json
import math
from pathlib import Path
from typing import Any

import pytest
import yaml

from regft_core.report import Inputs, write_report
from regft_core.report.published import words
from regft_core.schema.report import ReportConfig
from tests.report.test_published import text_of

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


def report(
    synthetic: Any,
    root: Path,
    given: dict[str, Any],
    skills: tuple[float, float] = (0.7, 0.8),
    seeds: int = 5,
    **arms: Any,
) -> Any:
    for folder, names in (("tasks", ("sst2", "rte")), ("methods", ("vanilla", "good", "third"))):
        (root / "pipelines" / folder).mkdir(parents=True, exist_ok=True)
        for name in names:
            (root / "pipelines" / folder / f"{name}.yaml").write_text("")
    (root / "published").mkdir()
    (root / "published" / "p_table1.yaml").write_text(yaml.safe_dump(given, sort_keys=False))
    every = {"vanilla": synthetic.Arm(skills[0]), "good": synthetic.Arm(skills[1]), **arms}
    tasks = {name: synthetic.Task(n=1000, ood=()) for name in ("sst2", "rte")}
    cells = synthetic.build(root, every, tasks, (300,), range(seeds))
    config = ReportConfig(bootstrap_samples=300, published=["p_table1"])
    return write_report(
        Inputs(root, cells, range(seeds), config, synthetic.methods_of(every), training=synthetic.TRAINING)
    )


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


def test_another_encoder_is_not_tested(synthetic: Any, tmp_path: Path) -> None:
    encoders = {"M": {"model": "google-bert/bert-large-cased", "source": "the paper"}}
    found = report(synthetic, tmp_path, table(10.0, encoders=encoders))
    (one,) = found.published[0].claims
    assert one.word == "not tested here"
    assert one.tested[0].why == "another encoder: all-MiniLM-L6-v2 here, bert-large-cased in the paper"
    assert "not tested here: good gains over plain" in text_of(found, 200)


def test_methods_and_sizes_that_were_not_run_are_not_tested(synthetic: Any, tmp_path: Path) -> None:
    given = table(10.0)
    given["rows"].append({**given["rows"][0], "method": "Third", "arm": "third"})
    given["claims"] = [{**CLAIM, "over": "third"}, {**CLAIM, "over": ["vanilla", "third"]}]
    absent, partly = verdicts(synthetic, tmp_path, given)
    assert (absent.word, absent.tested[0].why) == ("not tested here", "third was not run here")
    assert partly.word == "reproduced"
    assert "1 of its 2 comparisons tested here" in words.claimed(partly)


def test_failed_runs_are_left_out_and_told(synthetic: Any, tmp_path: Path) -> None:
    broken = synthetic.Arm(0.8, failed={1: "out of memory"})
    (found,) = verdicts(synthetic, tmp_path, table(10.0), good=broken)
    assert (found.word, found.tested[0].seeds) == ("reproduced", 4)
    assert "1 seed left out, which a method did not finish" in found.tested[0].notes


def test_no_finished_run_is_not_tested(synthetic: Any, tmp_path: Path) -> None:
    broken = synthetic.Arm(0.8, failed=dict.fromkeys(range(5), "out of memory"))
    (found,) = verdicts(synthetic, tmp_path, table(10.0), good=broken)
    assert (found.word, found.tested[0].why) == ("not tested here", "no run of good on sst2 finished")


def test_collapsed_runs_and_identical_answers_do_not_crash(synthetic: Any, tmp_path: Path) -> None:
    given = table(
        10.0, claims=[{**CLAIM, "columns": ["all", "average"]}, {**CLAIM, "columns": "all", "measure": "deviation"}]
    )
    gone = synthetic.Arm(0.7, collapsed=tuple(range(5)))
    same, spread = verdicts(synthetic, tmp_path, given, vanilla=gone, good=gone)
    assert same.word == "not shown"
    for one in same.tested:
        assert "both methods give the same answers" in one.notes
        assert f"{20 if one.key == 'average' else 10} runs collapsed" in one.notes
    assert spread.word == "not tested here"
    assert {one.why for one in spread.tested} == {"a deviation is zero"}


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


def test_a_claim_without_numbers_is_judged_by_its_direction(synthetic: Any, tmp_path: Path) -> None:
    claims = [{**CLAIM, "columns": "all", "sizes": [300]}, {**CLAIM, "arm": "vanilla", "over": "good", "sizes": [300]}]
    found = report(synthetic, tmp_path, table(10.0, rows=[], missing="the numbers were lost", claims=claims))
    gains, loses = found.published[0].claims
    assert (gains.word, loses.word) == ("reproduced", "contradicted")
    assert [one.printed for one in gains.tested] == [None, None]
    assert "printed n/a" in words.judged(gains.tested[0], gains)


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


def test_verdicts_are_on_the_page_in_the_terminal_and_in_the_results(synthetic: Any, tmp_path: Path) -> None:
    found = report(synthetic, tmp_path, table(10.0))
    (one,) = found.published[0].claims
    assert '<span class="word up">▲ reproduced</span>' in found.html
    assert "▲ reproduced: good gains over plain" in text_of(found, 80)
    written = json.loads((tmp_path / "reports" / "results.json").read_text())["published"]["p_table1"]
    assert written["claims"][0]["word"] == "reproduced"
    assert written["claims"][0]["tested"][0]["ours"] == pytest.approx(
        [one.tested[0].ours.value, one.tested[0].ours.low, one.tested[0].ours.high]
    )
