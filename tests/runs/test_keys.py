"""What is in the key of a run, and what is not: the key is a correctness boundary."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from regft_core.runs import code
from regft_core.runs.context import Context
from regft_core.runs.evaluate import evaluation_key
from regft_core.runs.opened_project import Job
from tests.runs.conftest import TASK, change, edit, job, refresh

BY_LENGTH = "from regft_core.training.samplers import by_length\n\nbatches = by_length\n"


def key(root: Path, method: str = "hype_n", phase: str = "finetune", size: str = "24", seed: int = 0) -> str:
    return Context(Job(str(root), method, TASK, size, seed)).key(phase)


def test_what_changes_no_result_changes_no_key(project: Path) -> None:
    first = key(project)
    change(
        project,
        execution={"executor": "processes", "workers": 2, "checkpoint_seconds": 5, "threads": 2},
        report={"confidence": 0.9},
        methods=["vanilla", "hype_n", "weight_mixup", "pats"],
    )
    assert key(project) == first
    method = project / "pipelines" / "methods" / "hype_n.yaml"
    text = "# a comment\noverride: true\n" + method.read_text().replace("HyPe with", "Another text,")
    method.write_text(text)
    assert key(project) == first
    edit(method, "1.0e-5", "0.00001")
    assert key(project) == first
    change(project, grid={"seeds": [0, 1, 2], "sizes": [24, 16]})
    refresh(project)
    assert key(project) == first


@pytest.mark.parametrize(
    "changes",
    [
        {"training": {"learning_rate": 2e-3}},
        {"training": {"warmup_ratio": 0.2}},
        {"training": {"bucket_batches": 1}},
        {"training": {"dropout": {"attention": 0.2}}},
        {"model": {"max_length": 16}},
        {"model": {"pooling": "mean"}},
    ],
)
def test_a_value_that_a_run_computes_with_changes_its_key(project: Path, changes: dict[str, Any]) -> None:
    first = key(project)
    change(project, **changes)
    assert key(project) != first


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


@pytest.fixture
def pretend(monkeypatch: pytest.MonkeyPatch) -> Iterator[Callable[[str], None]]:
    """Pretend that a package is installed in another version."""

    def other(package: str) -> None:
        original = code.version
        monkeypatch.setattr(code, "version", lambda name: "9.9.9" if name == package else original(name))
        forget()

    def forget() -> None:
        """Be like a process that began after it was installed."""
        code._external.cache_clear()
        code._codes.clear()

    yield other
    forget()


@pytest.mark.parametrize("package", ["torch", "transformers", "tokenizers", "numpy"])
def test_another_version_of_a_package_that_computes_is_another_run(
    project: Path, pretend: Callable[[str], None], package: str
) -> None:
    """Left out of the key, results of two versions would pass for one."""
    context = Context(job(project, "weight_mixup"))
    assert package in context.phase("finetune").identity()["packages"]
    before = {name: context.key(name) for name in ("search", "finetune")}
    pretend(package)
    context = Context(job(project, "weight_mixup"))
    assert all(context.key(name) != first for name, first in before.items())


def test_a_package_that_says_nothing_about_numbers_changes_no_key(
    project: Path, pretend: Callable[[str], None]
) -> None:
    first = key(project)
    for package in ("rich", "pydantic", "mlflow", "dvc"):
        pretend(package)
    assert key(project) == first


def test_what_changes_the_key_of_an_evaluation(project: Path) -> None:
    def found(method: str = "vanilla", run: str = "a" * 64) -> str:
        context = Context(job(project, method))
        context.take({"finetune": run})
        return evaluation_key(context)

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
