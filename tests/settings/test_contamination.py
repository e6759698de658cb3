"""What an encoder was trained on is said wherever its scores are: here in validation, from one table."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import pytest
import yaml

from regft_core.errors import ConfigError
from regft_core.models.aliases import ALIASES
from regft_core.settings.files import CONTAMINATION
from regft_core.settings.papers.contamination import read_contamination, sentences
from stages import config as main
from tests.errors import raises_code

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
    for entry in shipped.config.trained_on.values():
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


def test_without_a_table_nothing_is_known(tmp_path: Path) -> None:
    assert read_contamination(tmp_path).of("minilm", ["opinions"]) == {}


@pytest.mark.parametrize("command", [[], ["plan"]])
def test_validation_and_plan_warn_with_the_place(build: Any, capsys: Any, command: list[str]) -> None:
    root = build({CONTAMINATION: TABLE, "params.yaml": PARAMS})
    assert main.main([*command, "--root", str(root)]) == 0
    assert "warning: params.yaml:1: minilm was trained on Opinions 1.0 (its card)" in capsys.readouterr().err
    for path in root.rglob("*"):
        os.utime(path, (1, 1))  # old enough to be read once
    assert main.main([*command, "--root", str(root)]) == 0
    assert "was trained on" in capsys.readouterr().err
    (root / CONTAMINATION).write_text(yaml.safe_dump({"trained_on": {}}))
    assert main.main([*command, "--root", str(root)]) == 0
    assert "was trained on" not in capsys.readouterr().err


PARAMS = """\
model: {name: minilm}
grid: {tasks: [opinions], sizes: [100], seeds: [0, 1, 2, 3, 4, 5]}
methods: [vanilla]
training: {epochs: 2}
subsample: {}
report: {}
"""


def test_a_wrong_table_is_a_problem_with_file_and_line(build: Any, capsys: Any) -> None:
    root = build({CONTAMINATION: TABLE.replace("source", "sorce"), "params.yaml": PARAMS})
    with raises_code(ConfigError, "key-missing", "contamination.yaml:4"):
        read_contamination(root)
    assert main.main(["--root", str(root)]) == 2
    shown = capsys.readouterr().err
    assert f"{CONTAMINATION}:4" in shown
    assert "sorce" in shown
