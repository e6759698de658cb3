"""Every command explains itself, and names that are not there get the nearest one."""

from __future__ import annotations

from pathlib import Path

import pytest

from stages.common import DVC_STAGES
from tests.small_project import REPOSITORY, stage

NO_COMMAND = ("__init__", "common", "cli")
COMMANDS = sorted(path.stem for path in (REPOSITORY / "stages").glob("*.py") if path.stem not in NO_COMMAND)


@pytest.mark.parametrize("name", COMMANDS)
def test_help_says_what_it_does_and_what_every_argument_means(name: str) -> None:
    done = stage(REPOSITORY, name, "--help")
    assert done.returncode == 0, done.stderr
    assert done.stdout.startswith(f"usage: python -m stages.{name}")
    usage, *rest = done.stdout.split("\n\n")
    assert len(" ".join(rest).split()) > 20
    if name not in ("preset", "run", "fit"):  # which run `dvc repro` themselves
        assert ("dvc repro" in done.stdout) == (name in DVC_STAGES)
    options = done.stdout.split("options:")[1]
    for line in options.splitlines():
        if line.startswith("  --"):
            # Long names have their explanation on the next line.
            assert len(line.split()) >= 2
    assert "VALUE" not in usage


def test_every_stage_of_the_pipeline_is_known() -> None:
    others = {"export", "fetch", "papers", "pick", "predict", "submission", "preset", "store", "config", "methods"}
    others |= {"fit", "init", "run", "serve", "test_method", "version"}
    assert set(DVC_STAGES) | others == set(COMMANDS)


@pytest.mark.parametrize(
    ("name", "arguments", "message"),
    [
        ("search", ("--only", "vanilla/review"), "did you mean 'reviews'?"),
        (
            "finetune",
            ("--only", "pool/reviews"),
            "method 'pool' is not listed [not-listed]\n    -> did you mean 'pooled'?",
        ),
        ("evaluate", ("--only", "vanila/reviews"), "did you mean 'vanilla'?"),
        ("evaluate", ("--only", "vanilla"), "task '' is not listed"),
    ],
)
def test_an_unknown_name_is_answered_with_the_nearest(
    trained: Path, name: str, arguments: tuple[str, ...], message: str
) -> None:
    done = stage(trained, name, *arguments)
    assert done.returncode == 2
    assert message in done.stderr
    assert "Traceback" not in done.stderr
    assert not (trained / "work" / "search" / "vanilla" / "review").exists()
