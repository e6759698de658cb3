"""What is in the key of a run, and what is not: the key is a correctness boundary."""

from __future__ import annotations

from importlib.metadata import version
from pathlib import Path
from typing import Any

import pytest

from regft_core.runs.context import Context
from regft_core.runs.evaluate import evaluation_key
from tests.runs.conftest import TASK, change, edit, job

BY_LENGTH = "from regft_core.training.samplers import by_length\n\nbatches = by_length\n"


def key(root: Path, method: str = "hype_n", phase: str = "finetune") -> str:
    return Context(job(root, method)).key(phase)


@pytest.mark.parametrize(
    ("folder", "setting", "text"),
    [
        ("schedules", {"training": {"schedule": "own"}}, "def factor(progress):\n    return 1.0\n"),
        ("samplers", {"training": {"sampler": "own"}}, BY_LENGTH),
        ("poolings", {"model": {"pooling": "own"}}, "def pool(hidden, mask, summary):\n    return hidden.amax(1)\n"),
    ],
)
def test_a_file_of_ones_own_is_in_the_keys_of_what_it_computes(
    project: Path, folder: str, setting: dict[str, Any], text: str
) -> None:
    (project / folder).mkdir()
    file = project / folder / "own.py"
    file.write_text(text)
    shipped = key(project)
    change(project, **setting)
    first = key(project)
    assert first != shipped
    file.write_text(text + "# a comment\n")
    assert key(project) == first
    file.write_text(text + "USED = 1\n")
    assert key(project) != first


@pytest.mark.parametrize("changes", [{"learning_rate": 2e-3}, {"epochs": 3}, {"warmup_ratio": 0.2}])
def test_a_setting_of_steps_is_in_no_key_of_a_phase_without_steps(project: Path, changes: dict[str, Any]) -> None:
    """The probe is not fitted again for another learning rate; what goes on from it is trained again."""
    change(project, methods=["vanilla", "linear_probe", "lp_ft"])
    places = [("linear_probe", "finetune"), ("lp_ft", "head"), ("lp_ft", "finetune")]
    first = [key(project, *place) for place in places]
    change(project, training=changes)
    found = [one == other for one, other in zip(first, (key(project, *place) for place in places), strict=True)]
    assert found == [True, True, False]


def test_packages_that_compute_are_in_the_key_with_their_versions(project: Path) -> None:
    """Left out of the key, results of two versions would pass for one."""
    context = Context(job(project, "weight_mixup"))
    for phase in (context.last.identity(), context.phase("search").identity(0)):
        used = {package: version(package) for package in ("torch", "transformers", "tokenizers", "numpy")}
        assert phase["packages"].items() >= used.items()
        assert not {"rich", "pydantic", "mlflow", "dvc"} & set(phase["packages"])


def test_what_changes_the_key_of_an_evaluation(project: Path) -> None:
    def found(method: str = "vanilla", run: str = "a" * 64) -> str:
        return evaluation_key(Context(job(project, method)), run)

    first = found()
    assert found("hype_n") == first  # the run's key has the rest
    assert found(run="b" * 64) != first
    for changes in ({"model": {"max_length": 16}}, {"model": {"pooling": "mean"}}):
        before = (project / "params.yaml").read_text()
        change(project, **changes)
        assert found() != first
        (project / "params.yaml").write_text(before)
    for file, old, new in (
        ("ood/reversed.jsonl", "the", "teh"),
        ("dev.jsonl", '"label": 1', '"label": 0'),
        ("task.json", '"primary": "accuracy"', '"primary": "f1"'),
    ):
        path = project / "work/datasets" / TASK / file
        before = path.read_text()
        edit(path, old, new)
        assert found() != first, file
        path.write_text(before)
    assert found() == first
