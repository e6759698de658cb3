"""A project with everything trained, evaluated and reported, shared by the tests that only read it."""

from __future__ import annotations

from pathlib import Path

import pytest

from regft_core.api import Project
from regft_core.runs.context import Job
from regft_core.serve.export import export
from tests.promises.kit import done, write_method
from tests.small_project import PAIRS, SCORES, TASK, build, review, write_csv

#: (method, task) -> an exported directory.
Exported = dict[tuple[str, str], Path]
#: 800 words are more tokens than any encoder here reads.
LONG = review(1, 800)


@pytest.fixture(scope="session")
def trained(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Three tasks, a head of the family's own and one on the mean of all tokens; the dev set has a long text."""
    root = tmp_path_factory.mktemp("trained") / "project"
    tasks = {"reviews": TASK, "pairs": PAIRS, "scores": SCORES}
    build(root, tasks=tasks, methods=["vanilla", "pooled"], grid={"tasks": list(tasks)})
    write_method(root, "pooled", model={"pooling": "mean", "pairs": "separately"})
    rows = [("review", "verdict"), *((review(n), ("bad", "good")[n % 2]) for n in range(31)), (LONG, "good")]
    write_csv(root / "data" / "dev.csv", rows)
    project = Project.open(root)
    for method_name in ("vanilla", "pooled"):
        for task in tasks:
            project.run(method_name, task)
    done(root, "report")
    return root


@pytest.fixture(scope="session")
def exported(trained: Path) -> Exported:
    """(method, task) -> exported directory of seed 1."""
    return {
        (method, task): export(Job(str(trained), method, task, "16", 1))
        for method in ("vanilla", "pooled")
        for task in ("reviews", "pairs", "scores")
    }
