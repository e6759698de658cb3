"""The sections ``tuning`` and ``evaluations``: which trials each arm gets; names, options and tasks of evaluations."""

from __future__ import annotations

from typing import Any

import pytest

from regft_core.errors import ConfigError
from regft_core.schema.params import TuningConfig
from regft_core.settings.cost import plan_rows
from regft_core.settings.project import Project, budget_lines
from tests.errors import raises_code
from tests.settings.conftest import PARAMS, Load

RATES = "values: {training.learning_rate: [1.0e-5, 2.0e-5]}"


def tuned(load: Load, tuning: str) -> Project:
    return load({"params.yaml": PARAMS + f"tuning:\n  {tuning}\n"})


def test_a_grid_is_crossed_with_an_arms_own_and_replaced_by_a_list(load: Load) -> None:
    own = """\
methods:
    noise: {regularisers.noise.scale: [0.1, 0.2]}
    mask: [{phases.search.training.epochs: 1}, {phases.finetune.regularisers.mask.probability: 0.25}]
  selection: dev_as_published
  """
    project = tuned(load, own + RATES)
    assert project.trials("vanilla") == [{"training.learning_rate": 1e-5}, {"training.learning_rate": 2e-5}]
    assert project.trials("noise") == [
        {"training.learning_rate": rate, "regularisers.noise.scale": scale}
        for rate in (1e-5, 2e-5)
        for scale in (0.1, 0.2)
    ]
    assert len(project.trials("mask")) == 2
    method, training = project.tuned("noise", "opinions", project.trials("noise")[3])
    assert method.training.learning_rate == 2e-5
    assert method.finetune.regularisers[0][1].scale == 0.2
    assert training == project.params.training  # one phase: the value is the method's
    lines = budget_lines(project.params.tuning or TuningConfig(), project.methods.values())
    assert lines[2] == "  noise: 4 trials over training.learning_rate, regularisers.noise.scale"
    assert "optimistic" in lines[0]


def test_shared_values_reach_every_phase(load: Load) -> None:
    project = tuned(load, RATES)
    method, training = project.tuned("mask", None, {"training.learning_rate": 3e-5})
    assert [phase.training.learning_rate for phase in method.phases] == [3e-5, 3e-5]
    assert training.learning_rate == 3e-5


def test_a_number_of_trials_is_drawn_alike_for_equal_grids(load: Load) -> None:
    values = "trials: 2\n  values: {training.learning_rate: [1.0e-5, 2.0e-5, 3.0e-5, 4.0e-5]}"
    project = tuned(load, values)
    assert len(project.trials("vanilla")) == 2
    assert project.trials("vanilla") == project.trials("mask")


@pytest.mark.parametrize(
    ("rule", "runs"),
    [
        ("split: 0.5", 2 * 0.5 + 1),  # two trials on half of the rows, and the run
        ("selection: dev_as_published", 2),
        ("folds: 4", 2 * 4 * 0.75 + 1),  # each trial trained four times on three quarters of the rows
    ],
)
def test_the_plan_counts_trials(load: Load, rule: str, runs: float) -> None:
    plain = plan_rows(load({}))[0].cost
    assert plan_rows(tuned(load, f"{rule}\n  {RATES}"))[0].cost == pytest.approx(plain * runs)


def test_no_trials_for_what_takes_no_steps_or_says_so(load: Load) -> None:
    tuning = "tuning:\n  methods: {mask: {}}\n  " + RATES + "\n"
    files = {"params.yaml": PARAMS + tuning, "pipelines/methods/noise.yaml": "training: {epochs: 0}\n"}
    project = load(files)
    assert [len(project.trials(name)) for name in ("vanilla", "noise", "mask")] == [2, 0, 0]


# ----------------------------------------------------------------------------------------- evaluations


@pytest.mark.parametrize(
    ("section", "expected"),
    [
        ("", {}),
        ("evaluations: []", {}),
        ("evaluations: [sensitivity, calibration]", {"sensitivity": {}, "calibration": {}}),
        ("evaluations: {sensitivity: {}, calibration: {}}", {"sensitivity": {}, "calibration": {}}),
        ("evaluations:\n  calibration: {bins: 10}", {"calibration": {"bins": 10}}),
    ],
)
def test_a_list_and_a_mapping_mean_the_same(load: Load, section: str, expected: dict[str, Any]) -> None:
    assert load({"params.yaml": f"{PARAMS}{section}\n"}).params.evaluations == expected


def test_an_evaluation_that_fits_no_task_is_refused(load: Load) -> None:
    params = PARAMS.replace("[opinions]", "[scores]") + "evaluations: [calibration, sensitivity]\n"
    with raises_code(ConfigError, "no-task-fits", "evaluations[0]: 'calibration", "classification"):
        load({"params.yaml": params})
