"""Every command explains itself, and names that are not there get the nearest one."""

from __future__ import annotations

from pathlib import Path

import pytest

from stages import cli
from tests.small_project import REPOSITORY, stage


@pytest.mark.parametrize("name", [name for name in cli.commands() if name != "test-method"])  # a test for pytest
def test_help_says_what_it_does_and_what_every_argument_means(name: str) -> None:
    done = stage(REPOSITORY, name, "--help")
    assert done.returncode == 0, done.stderr
    assert done.stdout.startswith(f"usage: regft {name}")
    assert cli.first_line(name) in cli.usage()
    _, *rest = done.stdout.split("\n\n")
    assert len(" ".join(rest).split()) > 20
    for line in done.stdout.split("options:")[1].splitlines():
        if line.startswith("  --"):
            # Long names have their explanation on the next line.
            assert len(line.split()) >= 2


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
