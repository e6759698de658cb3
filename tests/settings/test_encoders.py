"""One encoder has many spellings, another has none of them; what an encoder was trained on is said."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from regft_core.models.fetch import ALIASES
from regft_core.settings.papers.encoders import (
    UNNAMED,
    between_phases,
    in_directory,
    named,
    read_contamination,
    sentences,
)
from regft_core.settings.yaml_paths import CONTAMINATION

LARGE = named("FacebookAI/roberta-large")
CONFIG = {"_name_or_path": "roberta-large"}


@pytest.mark.parametrize(
    ("name", "same"),
    [
        # The organisation, where it is the known one, and the case of letters do not matter.
        *((name, True) for name in ("roberta-large", "facebookai/RoBERTa-Large", "FacebookAI/roberta-large")),
        *((name, False) for name in ("someone/roberta-large", "roberta-base", "roberta-large-mnli", "minilm")),
        ("xlm-roberta-large", False),
    ],
)
def test_which_names_are_one_encoder(name: str, same: bool) -> None:
    assert named(name).same(LARGE) == LARGE.same(named(name)) == same


def test_a_tuned_checkpoint_is_its_start_after_the_task() -> None:
    tuned = named("roberta-large-mnli")
    assert (tuned.name, tuned.trained_on) == ("FacebookAI/roberta-large", ("mnli",))
    assert tuned.same(LARGE.after("mnli"))
    assert tuned.title == "roberta-large, tuned on mnli"


@pytest.mark.parametrize(
    ("path", "config"), [("/models/mine", CONFIG), ("/hub/models--FacebookAI--roberta-large/snapshots/722cf/", {})]
)
def test_a_directory_is_what_its_configuration_says(path: str, config: dict[str, Any]) -> None:
    assert in_directory(path, config).same(LARGE)


@pytest.mark.parametrize(
    "config",
    [{}, {**CONFIG, "architectures": ["RobertaForSequenceClassification"]}, {**CONFIG, "finetuning_task": "x"}],
)
def test_a_directory_without_an_origin_or_with_a_task_behind_it_is_not(config: dict[str, Any]) -> None:
    for path in ("/models/roberta-large", "roberta-large"):
        assert not in_directory(path, config).same(LARGE)


def test_tuned_directories() -> None:
    found = in_directory(
        "m", CONFIG | {"finetuning_task": "MNLI", "architectures": ["RobertaForSequenceClassification"]}
    )
    assert found.same(named("roberta-large-mnli"))
    found = in_directory("m", CONFIG | {"architectures": ["RobertaForSequenceClassification"]})
    assert found.trained_on == (UNNAMED,)


MNLI, SNLI = ({"task": task, "labels": True} for task in ("mnli", "snli"))


@pytest.mark.parametrize(
    ("phases", "found"),
    [
        ({}, ()),
        ({"between": {"start": "checkpoint", "data": MNLI}}, ("mnli",)),
        ({"between": {"start": "checkpoint", "data": {"task": "rte", "labels": True}}}, ()),  # the task itself
        ({"text": {"start": "checkpoint", "data": {"task": "mnli", "labels": False}}}, ()),
        ({"other": {"start": "checkpoint", "data": MNLI}, "between": {"start": "checkpoint", "data": SNLI}}, ("snli",)),
        (
            {"first": {"start": "checkpoint", "data": MNLI}, "between": {"start": "first", "data": SNLI}},
            ("mnli", "snli"),
        ),
    ],
)
def test_what_the_last_phase_starts_from(phases: dict[str, Any], found: tuple[str, ...]) -> None:
    last = {"start": list(phases)[-1] if phases else "checkpoint", "data": {"task": None, "labels": True}}
    assert between_phases({**phases, "finetune": last}, "rte") == found


# --------------------------------------------------------------------------------------- contamination


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
