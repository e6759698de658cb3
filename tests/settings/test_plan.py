"""Lengths and costs of a training: steps, factors, matched compute, what is cached."""

from __future__ import annotations

from typing import Any

import pytest

from regft_core.disk.files import write_json
from regft_core.hooks.declare import Declares
from regft_core.hooks.description import Description
from regft_core.schema.method import Cost
from regft_core.schema.training import TrainingConfig, scaled
from regft_core.settings.cost import plan_rows, table
from regft_core.settings.document import Document
from regft_core.settings.layers import lay
from tests.settings.conftest import PARAMS, Load, Plain, load_project
from tests.small_project import REPOSITORY


def test_a_public_set_counts_with_its_published_rows_until_it_is_prepared(build: Any, registry: dict[str, Any]) -> None:
    """Presets of whole public sets used to be planned with no cost at all before their data were fetched."""
    shipped = (REPOSITORY / "pipelines/tasks/rte.yaml").read_text(encoding="utf-8").partition("ood:")[0]
    root = build({"pipelines/tasks/rte.yaml": shipped, "params.yaml": PARAMS.replace("[opinions]", "[rte]")})
    full = [row for row in plan_rows(load_project(root, registry)) if row.cell.size == "full"]
    assert [(row.rows, row.steps, row.published) for row in full[:1]] == [(2490, 2 * 156, True)]
    assert "published numbers of rows" in table(full, lambda cell: None)
    write_json(root / "work/datasets/rte/task.json", {"counts": {"train": 33}})
    (prepared, *_) = [row for row in plan_rows(load_project(root, registry)) if row.cell.size == "full"]
    assert (prepared.rows, prepared.published) == (33, False)


def test_all_runs_of_a_fresh_project_are_to_train_and_cached_ones_are_not(build: Any, registry: dict[str, Any]) -> None:
    root = build({})
    rows = plan_rows(load_project(root, registry))
    assert "36 of 36 runs to train, about 420 plain steps and 18 runs of unknown length" in table(rows, lambda _: None)
    write_json(root / "work/datasets/opinions/task.json", {"counts": {"train": 33}})
    rows = plan_rows(load_project(root, registry), lambda cell: {0, 1, 77})
    # The fake noise declares two forwards and two backwards per step; mask has a phase of two epochs before.
    assert [(row.steps, row.cost) for row in rows] == [(14, 14), (6, 6), (14, 28), (6, 12), (14, 28), (6, 12)]
    noise = rows[2]
    assert (noise.cell.directory, noise.seeds, noise.cached, noise.to_train) == ("noise/opinions/100", 6, 2, 4)
    line = next(one for one in table([noise], lambda cell: 600.0).splitlines() if one.startswith("noise"))
    assert line.split()[-2:] == ["10", "min"]


def test_planned_steps_are_those_of_the_rows_that_fine_tuning_has(load: Load) -> None:
    rows = plan_rows(load({"pipelines/methods/mask.yaml": "phases: {finetune: {data: {split: 0.5}}}\n"}))
    assert [row.steps for row in rows if row.cell.size == 100] == [14, 14, 2 * 4]


class Costly(Plain):
    """A step forwards twice and goes half a pass back; a fit is an epoch and a half of passes."""

    name = "mask"

    @classmethod
    def declare(cls, options: Any) -> Declares:
        return Declares(description=Description(cost=Cost(2, 0.5), fit_cost=Cost(2.5, 1)))


SPLIT = "data: {split: 0.5}, repeat: {times: 3}, regularisers: {mask: {}}"


@pytest.mark.parametrize(
    ("training", "search", "cost"),
    [
        # Two epochs of 7 batches. Three members of 4 epochs on 50 rows in 4 batches, (2 + 2 * 0.5) / 3 each, and a fit.
        ("epochs: 2", f"{SPLIT}, training: {{epochs: 4}}", 14 + 3 * (4 + 1.5) * 4),
        ("epochs: 2", f"{SPLIT}, training: {{epochs: 0}}", 14 + 3 * 1.5 * 4),
        ("epochs: 2\n  accumulation: 2", f"{SPLIT}, training: {{epochs: 0}}", 2 * (8 + 3 * 1.5 * 2)),
        ("epochs: 2\n  max_steps: 5", f"{SPLIT}, training: {{epochs: 0}}", 5 + 3 * 1.5 * 4),
        # Four epochs of 13 steps of two batches of 4 each, beside batches of 16.
        ("epochs: 2", "training: {epochs: 4, batch_size: 4, accumulation: 2}", 14 + 4 * 13 * 2 * 4 / 16),
    ],
)
def test_a_cost_is_that_of_all_phases_members_and_fits(
    load: Load, registry: dict[str, Any], training: str, search: str, cost: float
) -> None:
    registry["mask"] = Costly
    method = f"phases:\n  search: {{{search}}}\n  finetune: {{}}\n"
    params = PARAMS.replace("epochs: 2", training)
    project = load({"params.yaml": params, "pipelines/methods/mask.yaml": method})
    rows = {row.cell.directory: row for row in plan_rows(project)}
    assert rows["mask/opinions/100"].cost == pytest.approx(cost)
    # Of a set that is not prepared nobody knows how many rows there are, also where steps are counted.
    assert rows["mask/opinions/full"].cost is None
    assert rows["mask/opinions/full"].steps == (5 if "max_steps: 5" in training else None)


# ---------------------------------------------------------------------------------------------------- matched compute


MATCHED = "regularisers: {}\ntraining: {steps_factor: {match: mask}}\n"


class Split(Plain):
    """Fits something in three passes forward and three back."""

    name = "split"

    @classmethod
    def declare(cls, options: Any) -> Declares:
        return Declares(description=Description(fit_cost=Cost(3, 3)))


def files(training: str, **methods: str) -> dict[str, str | None]:
    changes: dict[str, str | None] = {"params.yaml": PARAMS.replace("epochs: 2", training)}
    return changes | {f"pipelines/methods/{name}.yaml": text for name, text in methods.items()}


@pytest.fixture
def registry(registry: dict[str, Any]) -> dict[str, Any]:
    return {**registry, "split": Split}


@pytest.mark.parametrize(
    ("training", "first", "last", "epochs", "max_steps"),
    [
        # Three epochs' worth of passes of four members on half of the rows, and two of steps.
        (
            "epochs: 2",
            "data: {split: 0.5}, repeat: {times: 4}, regularisers: {split: {}}, training: {epochs: 0}",
            "{}",
            2 + 3 * 4 // 2,
            None,
        ),
        # The phase that averages members takes no steps.
        (
            "epochs: 2\n  max_steps: 50\n  accumulation: 2",
            "repeat: {times: 5, vary: [order]}",
            "{training: {epochs: 0}}",
            None,
            250,
        ),
        # Counted steps are matched in batches of the shared size; an epoch goes over the same rows in any batches.
        ("epochs: 2\n  max_steps: 50", "training: {batch_size: 4}", "{}", None, 50 + round(50 / 4)),
        ("epochs: 2", "training: {batch_size: 4}", "{}", 4, None),
    ],
)
def test_the_control_takes_the_passes_of_its_arm(
    load: Load, training: str, first: str, last: str, epochs: int | None, max_steps: int | None
) -> None:
    arm = f"phases:\n  search: {{{first}}}\n  finetune: {last}\n"
    project = load(files(training, mask=arm, noise=MATCHED))
    own = project.methods["noise"].training
    assert own.max_steps == max_steps
    if epochs is not None:  # they count for nothing beside steps
        assert own.epochs == epochs


@pytest.mark.parametrize(
    ("training", "search"),
    [
        ("epochs: 2\n  max_steps: 50", "training: {epochs: 1}"),
        ("epochs: 2", "training: {max_steps: 50}"),
        # How many steps one pass over the rows is worth differs from size to size.
        ("epochs: 2\n  max_steps: 50", "regularisers: {split: {}}, training: {epochs: 0}"),
        ("epochs: 2", "data: {task: films}"),
        # As many steps as all rows of the task would take: half of them were counted.
        ("epochs: 2", "data: {split: 0.5, steps: full}"),
    ],
)
def test_what_has_no_common_factor_is_refused(failures: Any, training: str, search: str) -> None:
    """They were divided by each other's number: 50 steps counted as the epochs that they do not take."""
    searched = f"phases:\n  search: {{{search}}}\n  finetune: {{}}\n"
    (problem,) = failures(files(training, mask=searched, noise=MATCHED))
    assert (problem.code, problem.file) == ("match-incomparable", "pipelines/methods/noise.yaml")


# --------------------------------------------------------------------------------------------- lengths


@pytest.mark.parametrize(
    ("shared", "factor", "words"),
    [
        ({"epochs": 1}, 0.1, "steps_factor 0.1 of epochs 1 makes epochs 0; allowed: 1 to 10000"),
        ({"epochs": 5000}, 3, "makes epochs 15000; allowed: 1 to 10000"),
        ({"max_steps": 1}, 0.2, "makes max_steps 0; allowed: 1 to 100000000"),
        ({"max_steps": 1_000_000}, 1000, "makes max_steps 1000000000"),
    ],
)
def test_a_factor_that_leaves_the_bounds_is_an_error_and_not_cut(
    shared: dict[str, Any], factor: float, words: str
) -> None:
    with pytest.raises(ValueError, match=words):
        scaled(TrainingConfig(**shared), factor)


@pytest.mark.parametrize(
    ("shared", "overrides", "epochs", "max_steps"),
    [
        ({"epochs": 10}, {"steps_factor": 2.0}, 20, None),
        ({"epochs": 10}, {"epochs": 4, "steps_factor": 1.5}, 6, None),
        ({"epochs": 10, "max_steps": 100}, {"steps_factor": 0.5}, 5, 50),
        ({"epochs": 10, "max_steps": 100}, {"max_steps": None, "steps_factor": 2.0}, 20, None),
        ({"epochs": 1, "max_steps": 100}, {"steps_factor": 0.1}, 1, 10),
        ({"epochs": 10}, {"epochs": 0, "steps_factor": 3}, 0, None),
        ({"epochs": 10, "max_steps": 100}, {}, 10, 100),
        ({"epochs": 10, "max_steps": 100}, {"epochs": 4}, 4, None),
        ({"epochs": 10, "max_steps": 100}, {"epochs": 0}, 0, None),
        ({"epochs": 10, "max_steps": 100}, {"epochs": 4, "max_steps": 30}, 4, 30),
    ],
)
def test_overrides_of_the_length(
    shared: dict[str, Any], overrides: dict[str, Any], epochs: int, max_steps: int | None
) -> None:
    base, over = (Document({"training": values}, {}, "a.yaml") for values in (shared, overrides))
    values = lay(base, over).data["training"]
    factor = values.pop("steps_factor", 1.0)
    training = scaled(TrainingConfig(**values), factor)
    assert (training.epochs, training.max_steps) == (epochs, max_steps)
