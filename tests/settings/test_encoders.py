"""Spellings of one encoder, the tasks that it was trained on before a run, and warnings of tasks that it has seen."""

from __future__ import annotations

from typing import Any

import pytest

from regft_core.models.fetch import ALIASES
from regft_core.settings.encoders import UNNAMED, Encoder, between_phases, in_directory, named, read_contamination
from regft_core.settings.yaml_paths import CONTAMINATION
from tests.small_project import REPOSITORY

LARGE = named("FacebookAI/roberta-large")
CONFIG = {"_name_or_path": "roberta-large"}
CLASSIFIER = CONFIG | {"architectures": ["RobertaForSequenceClassification"]}
OTHERS = ("someone/roberta-large", "roberta-base", "roberta-large-mnli", "minilm", "xlm-roberta-large")


@pytest.mark.parametrize(
    ("start", "same"),
    [
        # The organisation, where one is not said, and the case of letters do not matter.
        *((named(name), True) for name in ("roberta-large", "facebookai/RoBERTa-Large", "FacebookAI/roberta-large")),
        *((named(name), False) for name in OTHERS),
        (in_directory("/models/mine", CONFIG), True),
        (in_directory("/hub/models--FacebookAI--roberta-large/snapshots/722cf/", {}), True),
        # Without an origin, or with a task behind it.
        *((in_directory("/models/roberta-large", one), False) for one in ({}, CLASSIFIER)),
        *((in_directory("roberta-large", one), False) for one in ({}, {**CONFIG, "finetuning_task": "x"})),
    ],
)
def test_which_starts_are_one_encoder(start: Encoder, same: bool) -> None:
    assert start.same(LARGE) == LARGE.same(start) == same


def test_a_tuned_checkpoint_is_its_start_after_the_task() -> None:
    tuned = LARGE.after("mnli")
    assert tuned.title == "roberta-large, tuned on mnli"
    assert tuned.same(named("roberta-large-MNLI"))
    assert tuned.same(in_directory("m", CLASSIFIER | {"finetuning_task": "MNLI"}))
    assert in_directory("m", CLASSIFIER).trained_on == (UNNAMED,)


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


TABLE = """\
trained_on:
  ours:
    encoders: [minilm, elsewhere/encoder]
    source: its card
    tasks: {opinions: Opinions 1.0, reviews: All reviews}
"""


def test_the_shipped_table_names_tasks_and_encoders_that_there_are() -> None:
    shipped = read_contamination(REPOSITORY)
    tasks = {path.stem for path in (REPOSITORY / "pipelines" / "tasks").glob("*.yaml")}
    for entry in shipped.trained_on.values():
        assert set(entry.tasks) <= tasks
    for alias in ALIASES:
        assert set(shipped.of(alias, tasks)) == {
            *("snli", "snli_two_way", "mnli", "mnli_two_way", "qqp", "paws_qqp", "qnli")
        }
    assert shipped.of("minilm", ["sst2", "stsb", "mrpc"]) == {}
    assert shipped.of("bert-base-uncased", tasks) == {}
    assert "model card" in shipped.of("minilm", ["qqp"])["qqp"]


def test_of_a_table(build: Any) -> None:
    seen = read_contamination(build({CONTAMINATION: TABLE}))
    assert seen.of("elsewhere/encoder", ["reviews", "films", "opinions"]) == {
        "reviews": "All reviews (its card)",
        "opinions": "Opinions 1.0 (its card)",
    }
    assert seen.of("another", ["opinions"]) == {}
    assert list(seen.sentences("minilm", "opinions", ["reviews", "films"])) == [
        "minilm was trained on Opinions 1.0 (its card): scores on opinions are not those of few labels alone",
        "minilm was trained on All reviews (its card): for it the set reviews, which judges opinions, is not out of "
        "distribution",
    ]
