"""Sections of params.yaml: tuning, evaluations, and the grid, whose names and sizes no shell may have to interpret."""

from __future__ import annotations

from typing import Any

import pytest
from pydantic import ValidationError

from regft_core.errors import ConfigError
from regft_core.schema import NAME_LENGTH
from regft_core.schema.params import GridConfig, TuningConfig
from regft_core.settings.cost import plan_rows
from regft_core.settings.layers import all_sizes
from regft_core.settings.project import Project, budget_lines, cells
from tests.errors import raises_code
from tests.settings.conftest import PARAMS, Load, edit

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
    shared, training = project.tuned("mask", None, {"training.learning_rate": 3e-5})  # a shared value reaches all
    assert [phase.training.learning_rate for phase in shared.phases] == [3e-5, 3e-5]
    assert training.learning_rate == 3e-5
    lines = budget_lines(project.params.tuning or TuningConfig(), project.methods.values())
    assert lines[2] == "  noise: 4 trials over training.learning_rate, regularisers.noise.scale"
    assert "optimistic" in lines[0]


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
    for values in (RATES, "values: {model.pooling: [mean, cls]}"):
        assert plan_rows(tuned(load, f"{rule}\n  {values}"))[0].cost == pytest.approx(plain * runs)


def test_no_trials_for_what_takes_no_steps_or_says_so(load: Load) -> None:
    tuning = "tuning:\n  methods: {mask: {}}\n  " + RATES + "\n"
    files = {"params.yaml": PARAMS + tuning, "pipelines/methods/noise.yaml": "training: {epochs: 0}\n"}
    project = load(files)
    assert [len(project.trials(name)) for name in ("vanilla", "noise", "mask")] == [2, 0, 0]


@pytest.mark.parametrize("noise", ["model.pooling: [mean, cls]", "training.learning_rate: [1.0e-5, 2.0e-5, 3.0e-5]"])
def test_methods_that_train_another_number_of_trials_are_refused(load: Load, noise: str) -> None:
    """Trials that differ in the section model alone counted as one."""
    with raises_code(ConfigError, "unequal-trials", "vanilla 2"):
        tuned(load, f"methods: {{noise: {{{noise}}}}}\n  {RATES}")


def test_trials_without_steps_are_no_trainings(load: Load) -> None:
    own = "methods: {noise: {regularisers.noise.scale: [0.1, 0.2, 0.3]}}\n  "
    files = {"pipelines/methods/noise.yaml": "regularisers: {noise: {}}\ntraining: {epochs: 0}\n"}
    project = load({**files, "params.yaml": f"{PARAMS}tuning:\n  {own}{RATES}\n"})
    assert [len(project.trials(name)) for name in ("vanilla", "noise")] == [2, 3]


def test_a_tuned_model_is_checked_with_the_methods_own(load: Load) -> None:
    own = {"pipelines/methods/noise.yaml": "regularisers: {noise: {}}\nmodel: {pooling: mean, pairs: separately}\n"}
    tuning = "tuning: {methods: {noise: {model.pooling: [mean, head]}}}\n"
    with raises_code(ConfigError, "inconsistent", "pooling: head"):
        load({**own, "params.yaml": PARAMS + tuning})


# ----------------------------------------------------------------------------------------- evaluations


def test_a_list_and_a_mapping_mean_the_same(load: Load) -> None:
    for section in ("[sensitivity, calibration]", "{sensitivity: {}, calibration: {}}"):
        params = load({"params.yaml": f"{PARAMS}evaluations: {section}\n"}).params
        assert params.evaluations == {"sensitivity": {}, "calibration": {}}


def test_an_evaluation_that_fits_no_task_is_refused(load: Load) -> None:
    params = PARAMS.replace("[opinions]", "[scores]") + "evaluations: [calibration, sensitivity]\n"
    with raises_code(ConfigError, "no-task-fits", "evaluations[0]: 'calibration", "classification"):
        load({"params.yaml": params})


def test_an_average_needs_a_size_that_its_tasks_have_in_common(load: Load) -> None:
    """Without one it was left out of the report."""
    params = edit(PARAMS, "[opinions]", "[opinions, films]") + "task_settings: {films: {sizes: [50]}}\n"
    with raises_code(ConfigError, "no-common-size", "averages.x"):
        load({"params.yaml": edit(params, "report: {}", "report: {averages: {x: [opinions, films]}}")})


def test_workers_of_an_executor_that_has_none_are_warned_of(load: Load) -> None:
    for executor, warned in (("serial", True), ("slurm", True), ("processes", False)):
        project = load({"params.yaml": f"{PARAMS}execution: {{executor: {executor}, workers: 4}}\n"})
        assert any("4 workers" in warning for warning in project.warnings) == warned


# ----------------------------------------------------------------------------------------------------------- the grid


def test_cells_are_every_combination_in_the_order_of_the_file(load: Load, files: Any) -> None:
    project = load({})
    assert [cell.directory for cell in cells(project)] == [
        "vanilla/opinions/100",
        "vanilla/opinions/full",
        "noise/opinions/100",
        "noise/opinions/full",
        "mask/opinions/100",
        "mask/opinions/full",
    ]
    # A task has its own sizes where its settings say so.
    params = files["params.yaml"] + "task_settings: {opinions: {sizes: [50, full]}}\n"
    project = load({"params.yaml": params})
    assert [cell.directory for cell in cells(project)][:2] == ["vanilla/opinions/50", "vanilla/opinions/full"]
    assert all_sizes(project.params) == [50, "full"]


# -------------------------------------------------------------------------------- what reaches a shell


NOT_NAMES: list[Any] = ["16; touch X;", "a b", "a\n", "a\nb", "a\t", "$(id)", "`id`", "a|b", "a&b", "a>b", "${x}"]
NOT_NAMES += ["../a", "a/b", "a.b", ".", "-a", "_a", "A", "\u00e9", "\u0663", "\uff11", "a\u200b", "a\u0000", "", " "]
NOT_NAMES += ["a" * (NAME_LENGTH + 1), 1, 1.0, True, None, ["a"], {"a": 1}]
NOT_SIZES: list[Any] = ["16; touch X;", "16", "'16'", "full ", "full\n", "Full", "\u0661\u0666", "16\n", 16.0, 1.5e3]
NOT_SIZES += [True, False, 1, 0, -16, 10**10, 10**300, None, [16], {"full": 1}]
NOT_SEEDS: list[Any] = ["0", "0; id", "٠", 0.0, True, False, -1, 2**31, None, [0]]


@pytest.mark.parametrize(("key", "wrong"), [("tasks", NOT_NAMES), ("sizes", NOT_SIZES), ("seeds", NOT_SEEDS)])
def test_no_list_of_the_grid_takes_what_a_shell_could_interpret(key: str, wrong: list[Any]) -> None:
    right = {"tasks": ["a"], "sizes": [2, "full"], "seeds": [0]}
    assert GridConfig.model_validate(right).sizes == (2, "full")
    for value in wrong:
        with pytest.raises(ValidationError):
            GridConfig.model_validate({**right, key: [value]})
