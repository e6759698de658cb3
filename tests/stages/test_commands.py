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
    assert max(map(len, done.stdout.splitlines())) <= 80
    description, _, example = done.stdout.split("options:")[0].partition("\nexamples\n")
    assert f"regft {name}" in example
    assert "\nnext: " in example
    assert len(description.split()) > 20
    for line in done.stdout.split("options:")[1].splitlines():
        if line.startswith("  --"):
            # Long names have their explanation on the next line.
            assert len(line.split()) >= 2


def test_every_command_is_in_a_group_of_the_first_page() -> None:
    files = {path.stem.replace("_", "-") for path in (REPOSITORY / "stages").glob("*.py")}
    assert sorted(cli.commands()) == sorted(files - {"--init--", "cli", "common"})
    assert max(map(len, cli.usage().splitlines())) <= 80


def test_fit_shows_the_columns_of_a_file_where_none_is_named(tmp_path: Path) -> None:
    (tmp_path / "rows.csv").write_text("review,verdict\nfine,good\n")
    done = stage(tmp_path, "fit", "rows.csv", "--text", "review")
    assert done.returncode == 2
    assert "[column-unnamed]" in done.stderr
    assert "'review', 'verdict'" in done.stderr


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
