"""Minutes choose the set-up: folds, methods, trainings, repeats, encoder."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from regft_core.errors import ConfigError
from regft_core.fit.setup import OwnPreset, Setup, choose, read_preset
from tests.errors import problems_of
from tests.small_project import REPOSITORY

PRESET = OwnPreset.model_validate(
    {
        "always": ["probe"],
        "methods": ["share", "plain", "slow"],
        "training": {},
        "tuning": {
            "folds": 2,
            "methods": {"share": [[{"a": 0}, {"a": 1}], [{"b": 1}]], "plain": [[{"c": 1}], [{"c": 2}]]},
        },
    }
)
#: Seconds of a run of each method with one training; ``large`` takes ten times as long.
COSTS = {"probe": 1.0, "solved": 1.0, "share": 10.0, "plain": 10.0, "slow": 100.0}


def seconds(setup: Setup) -> float:
    factor = 10 if setup.encoder == "large" else 1
    trainings = {"share": setup.trainings, "plain": setup.trainings}
    runs = [factor * COSTS[name] * trainings.get(name, 1) for name in setup.methods]
    return sum(runs) * setup.folds * setup.repeats * setup.size + max(runs)


def chosen(budget: float, rows: int = 200, most: int | None = 50, may_forecast: bool = False) -> Setup:
    return choose(PRESET, PRESET.methods, ("large", "small"), rows, most, seconds, budget / 60, may_forecast)[0]


SHARE, PLAIN, SLOW = ("probe", "share"), ("probe", "share", "plain"), ("probe", "share", "plain", "slow")


@pytest.mark.parametrize(
    ("budget", "given", "setup"),
    [
        (4, {}, Setup("small", 3, ("probe",))),
        (6, {}, Setup("small", 5, ("probe",))),
        (39, {}, Setup("small", 5, ("probe",), repeats=2)),  # no fewer folds for ``share``
        (65, {}, Setup("small", 5, SHARE)),
        (115, {}, Setup("small", 5, PLAIN)),
        (225, {}, Setup("small", 5, PLAIN, repeats=2)),
        (430, {}, Setup("small", 5, PLAIN, 2, 2)),
        (650, {}, Setup("large", 5, SHARE)),
        (20_000, {}, Setup("large", 5, SLOW, 2, 2)),
        (1e8, {"most": 4}, Setup("large", 3, SLOW, 2, 2)),  # rare labels bound folds
        # A second repeat comes last of many rows, and first of few.
        (225, {"rows": 401, "may_forecast": True}, Setup("small", 5, PLAIN, 2)),
        (395, {"rows": 401, "may_forecast": True}, Setup("small", 5, PLAIN, 2, forecast=True)),
        (1e8, {"rows": 401, "may_forecast": True}, Setup("large", 5, SLOW, 2, 2, True)),
        (225, {"may_forecast": True}, Setup("small", 5, PLAIN, 1, 2)),
        (395, {"may_forecast": True}, Setup("small", 5, PLAIN, 1, 2, True)),
    ],
)
def test_the_rule(budget: float, given: dict[str, Any], setup: Setup) -> None:
    assert chosen(budget, **given) == setup


@pytest.mark.parametrize(
    ("budget", "more"),
    [
        (4, "5 folds from --minutes 6"),
        (39, "share from --minutes 65"),  # not 120: where it has room, it comes before the second repeat
        (115, "2 repeats of the folds from --minutes 120"),
        (20_000, ""),
    ],
)
def test_it_says_what_more_minutes_would_buy(budget: float, more: str) -> None:
    assert choose(PRESET, PRESET.methods, ("large", "small"), 9, 9, lambda s: 60 * seconds(s), budget, False)[1] == more


@pytest.mark.parametrize(("budget", "setup"), [(65, (False, 1)), (90, (True, 1)), (200, (True, 2))])
def test_more_trainings_of_the_final_model_come_before_a_second_repeat(budget: float, setup: tuple[bool, int]) -> None:
    preset = PRESET.model_copy(update={"refit": {"share": {"finetune": 3}}})
    methods = preset.methods[:1]
    chosen = choose(
        preset, methods, ("small",), 200, 50, lambda s: seconds(s) + 20 * s.refit, budget / 60, may_forecast=False
    )[0]
    assert (chosen.refit, chosen.repeats) == setup
    alone = choose(preset, methods, ("small",), 200, 50, lambda s: seconds(s) + 20 * s.refit, 39 / 60, False)[0]
    assert (alone.methods, alone.refit) == (("probe",), False)


def test_too_few_minutes_say_how_many_are_needed() -> None:
    with pytest.raises(ConfigError) as error:
        chosen(3)
    assert "too few for probe with 3 folds" in str(error.value)
    assert "--minutes 1 or more" in str(error.value)


def test_a_name_that_is_not_compared_is_refused(tmp_path: Path) -> None:
    shipped = (REPOSITORY / "pipelines" / "own_data.yaml").read_text()
    wrong = shipped.replace("prefer: [contrastive_", "prefer: [contrastve_").replace("uda: *", "udo: *")
    (tmp_path / "pipelines").mkdir()
    (tmp_path / "pipelines" / "own_data.yaml").write_text(wrong)
    prefer, tuned = problems_of(read_preset, tmp_path)
    assert (prefer.key, prefer.line, tuned.key) == ("prefer[0]", 4, "tuning.methods.udo")
    assert "did you mean 'contrastive_combination'?" in prefer.message
    assert "did you mean 'uda'?" in tuned.message


def test_the_shipped_preset_is_valid() -> None:
    preset = read_preset(REPOSITORY)
    for name in (*preset.always, *preset.methods):
        assert (REPOSITORY / "pipelines" / "methods" / f"{name}.yaml").is_file()
    # Few minutes take one share of one training; one of the shares of more is the start: the probe itself is an answer.
    shares = "phases.share.regularisers.wise_ft.alpha"
    first, second = ([trial[shares] for trial in trials] for trials in preset.tuning.methods["lp_ft_combination"][:2])
    assert len(first) == 1
    assert 0.0 in second
    # So that the best of them can be compared, each list adds one training, whatever shares of it are tried.
    for name, lists in preset.tuning.methods.items():
        for count in range(1, len(lists) + 1):
            settings = [{k: v for k, v in t.items() if k != shares} for t in preset.trials(name, count)]
            assert len({str(sorted(one.items())) for one in settings}) == count, name


def test_solved_methods_come_before_the_first_that_is_tuned() -> None:
    preset = PRESET.model_copy(update={"methods": ["solved", *PRESET.methods]})

    def chosen_of(budget: float) -> Setup:
        return choose(preset, preset.methods, ("large", "small"), 401, 50, seconds, budget / 60, False)[0]

    assert chosen_of(6).methods == ("probe",)
    assert chosen_of(12) == Setup("small", 5, ("probe", "solved"))
    assert chosen_of(75) == Setup("small", 5, ("probe", "solved", "share"))  # not the large one without ``share``
    assert chosen_of(230).trainings == 2
