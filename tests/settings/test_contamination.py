"""What an encoder was trained on is said wherever its scores are: here in validation, from one table."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from regft_core.models.aliases import ALIASES
from regft_core.settings.files import CONTAMINATION
from regft_core.settings.papers.contamination import read_contamination, sentences

ROOT = Path(__file__).resolve().parents[2]
TABLE = """\
trained_on:
  ours:
    encoders: [minilm, elsewhere/encoder]
    source: its card
    tasks: {opinions: Opinions 1.0, reviews: All reviews}
"""


def test_the_shipped_table_names_tasks_and_encoders_that_there_are() -> None:
    shipped = read_contamination(ROOT)
    tasks = {path.stem for path in (ROOT / "pipelines" / "tasks").glob("*.yaml")}
    for entry in shipped.trained_on.values():
        assert set(entry.tasks) <= tasks
    for alias in ALIASES:
        assert set(shipped.of(alias, tasks)) == {
            *("snli", "snli_two_way", "mnli", "mnli_two_way", "qqp", "paws_qqp", "qnli")
        }
    assert shipped.of("minilm", ["sst2", "stsb", "cue_pair"]) == {}
    assert shipped.of("bert-base-uncased", tasks) == {}
    assert "model card" in shipped.of("minilm", ["qqp"])["qqp"]


def test_of_a_table(build: Any) -> None:
    seen = read_contamination(build({CONTAMINATION: TABLE}))
    assert seen.of("elsewhere/encoder", ["reviews", "films", "opinions"]) == {
        "reviews": "All reviews (its card)",
        "opinions": "Opinions 1.0 (its card)",
    }
    assert seen.of("another", ["opinions"]) == {}
    assert sentences("minilm", "opinions", seen.of("minilm", ["opinions", "reviews"]), ["reviews", "films"]) == [
        "minilm was trained on Opinions 1.0 (its card): scores on opinions are not those of few labels alone",
        "minilm was trained on All reviews (its card): for it the set reviews, which judges opinions, is not out of "
        "distribution",
    ]
