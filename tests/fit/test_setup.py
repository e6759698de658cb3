"""Minutes choose the set-up: folds, methods, trainings, repeats, encoder, by the rule of ``own_setup``."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

import pytest

from regft_core.errors import ConfigError
from regft_core.fit.setup import AROUND, Chooser, OwnPreset, read_preset

ROOT = Path(__file__).resolve().parents[2]
PRESET = OwnPreset.model_validate(
    {
        "always": ["probe"],
        "methods": ["share", "plain", "slow"],
        "training": {},
        "tuning": {
            "folds": 2,
            "methods": {
                "share": [[{"a": 0}, {"a": 1}], [{"b": 1}]],
                "plain": [[{"c": 1}], [{"c": 2}]],
            },
        },
    }
)
#: Seconds of a run of each method with one training; ``large`` takes ten times as long.
COSTS = {"probe": 1.0, "share": 10.0, "plain": 10.0, "slow": 100.0}


def prices(encoder: str, folds: int, trainings: int) -> Mapping[str, float]:
    factor = 10 if encoder == "large" else 1
    return {name: factor * cost * (trainings if name in ("share", "plain") else 1) for name, cost in COSTS.items()}


def chooser(rows: int = 200, most: int | None = 50) -> Chooser:
    return Chooser(PRESET, prices, ("large", "small"), rows, most, workers=1)


def minutes(seconds: float) -> float:
    return (AROUND + seconds) / 60


@pytest.mark.parametrize(
    ("seconds", "encoder", "folds", "methods", "trainings", "repeats"),
    [
        (4, "small", 3, ["probe"], 1, 1),
        (6, "small", 5, ["probe"], 1, 1),
        (43, "small", 3, ["probe", "share"], 1, 1),
        (65, "small", 5, ["probe", "share"], 1, 1),
        (115, "small", 5, ["probe", "share", "plain"], 1, 1),
        (225, "small", 5, ["probe", "share", "plain"], 2, 1),
        (430, "large", 3, ["probe", "share"], 1, 1),
        (650, "large", 5, ["probe", "share"], 1, 1),
        (20_000, "large", 5, ["probe", "share", "plain", "slow"], 2, 2),
    ],
)
def test_the_rule(seconds: float, encoder: str, folds: int, methods: list[str], trainings: int, repeats: int) -> None:
    found, needed = chooser().choose(minutes(seconds))
    assert (found.encoder, found.folds, list(found.methods)) == (encoder, folds, methods)
    assert (found.trainings, found.repeats) == (trainings, repeats)
    assert needed <= AROUND + seconds


def test_too_few_minutes_say_how_many_are_needed() -> None:
    with pytest.raises(ConfigError) as error:
        chooser().choose(0.5)
    assert "too few for probe with 3 folds" in str(error.value)
    assert "--minutes 1 or more" in str(error.value)


def test_rare_labels_and_many_rows_bound_folds_and_repeats() -> None:
    found, _ = chooser(most=4).choose(1e6)
    assert (found.folds, found.repeats, found.seeds) == (3, 2, [0, 1, 2, 3, 4, 5])
    assert chooser(rows=401).choose(1e6)[0].repeats == 1


def test_a_method_with_one_trial_has_settings_instead() -> None:
    assert PRESET.fixed(["share", "plain"], 1) == {"plain": {"c": 1}}
    assert PRESET.trials(["share", "plain"], 1) == {"share": [{"a": 0}, {"a": 1}], "plain": []}
    assert PRESET.trials(["share", "plain"], 2)["plain"] == [{"c": 1}, {"c": 2}]


def test_the_shipped_preset_is_valid() -> None:
    preset = read_preset(ROOT)
    for name in (*preset.always, *preset.methods):
        assert (ROOT / "pipelines" / "methods" / f"{name}.yaml").is_file()
    # The first trial of the first method keeps the start: no better than the probe is an answer.
    assert preset.tuning.methods["lp_ft_share"][0][0]["phases.finetune.regularisers.wise_ft.alpha"] == 0.0
