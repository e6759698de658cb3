"""One encoder has many spellings; another encoder has none of them."""

from __future__ import annotations

from typing import Any

import pytest

from regft_core.settings.papers.encoders import (
    UNNAMED,
    between_phases,
    in_directory,
    named,
)

LARGE = named("FacebookAI/roberta-large")
CONFIG = {"model_type": "roberta", "num_hidden_layers": 24, "hidden_size": 1024, "vocab_size": 50265}


@pytest.mark.parametrize("name", ["roberta-large", "facebookai/RoBERTa-Large", "FacebookAI/roberta-large"])
def test_the_organisation_and_the_case_of_letters_do_not_matter(name: str) -> None:
    assert named(name).same(LARGE)
    assert LARGE.same(named(name))


@pytest.mark.parametrize(
    "name", ["someone/roberta-large", "roberta-base", "roberta-large-mnli", "xlm-roberta-large", "minilm"]
)
def test_another_encoder_is_another_encoder(name: str) -> None:
    assert not named(name).same(LARGE)


def test_aliases_stand_for_their_hub_ids() -> None:
    assert named("minilm").same(named("sentence-transformers/all-MiniLM-L6-v2"))
    assert named("mpnet").same(named("all-mpnet-base-v2"))


def test_a_tuned_checkpoint_is_its_start_after_the_task() -> None:
    tuned = named("roberta-large-mnli")
    assert (tuned.name, tuned.trained_on) == ("FacebookAI/roberta-large", ("mnli",))
    assert tuned.same(LARGE.after("mnli"))
    assert tuned.title == "roberta-large, tuned on mnli"


@pytest.mark.parametrize(
    ("path", "changes", "by"),
    [
        ("/models/mine", {"_name_or_path": "roberta-large"}, "config"),
        ("/models/mine", {}, "shape"),
        ("/hub/models--FacebookAI--roberta-large/snapshots/722cf/", {"model_type": "unread"}, "name"),
    ],
)
def test_a_directory_is_what_its_configuration_says(path: str, changes: dict[str, Any], by: str) -> None:
    found = in_directory(path, CONFIG | changes)
    assert found.same(LARGE)
    assert found.by == by


@pytest.mark.parametrize(
    "changes",
    [
        {"vocab_size": 50266},
        {"num_hidden_layers": 2, "_name_or_path": "roberta-large"},
        {"model_type": "bert", "_name_or_path": "roberta-large"},
        {"architectures": ["RobertaForSequenceClassification"], "_name_or_path": "roberta-large"},
        {"finetuning_task": "mnli"},
        {"hidden_size": None},
    ],
)
def test_a_directory_of_another_shape_or_with_a_task_behind_it_is_not(changes: dict[str, Any]) -> None:
    assert not in_directory("/models/roberta-large", CONFIG | changes).same(LARGE)


def test_tuned_directories() -> None:
    found = in_directory(
        "m", CONFIG | {"finetuning_task": "MNLI", "architectures": ["RobertaForSequenceClassification"]}
    )
    assert found.same(named("roberta-large-mnli"))
    found = in_directory("m", CONFIG | {"architectures": ["RobertaForSequenceClassification"]})
    assert found.trained_on == (UNNAMED,)


@pytest.mark.parametrize(
    ("phases", "found"),
    [
        ({}, ()),
        ({"intermediate": {"data": {"task": "mnli"}}, "finetune": {}}, ("mnli",)),
        ({"intermediate": {"data": {"task": "rte"}}, "finetune": {}}, ()),  # the task itself
        ({"text": {"data": {"task": "mnli", "labels": False}}, "finetune": {}}, ()),
        ({"a": {"data": {"task": "mnli"}}, "b": {"start": "checkpoint"}, "finetune": {}}, ()),
        ({"a": {"data": {"task": "mnli"}}, "b": {"start": "checkpoint"}, "finetune": {"start": "a"}}, ("mnli",)),
        ({"a": {"data": {"task": "mnli"}}, "b": {"data": {"task": "snli"}}, "finetune": {}}, ("mnli", "snli")),
    ],
)
def test_what_the_last_phase_starts_from(phases: dict[str, Any], found: tuple[str, ...]) -> None:
    assert between_phases({"phases": phases}, "rte") == found
