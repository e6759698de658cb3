"""A release is tagged when the tree, the version, the changelog and the wheel are in order, and only then."""

from __future__ import annotations

import shutil
import subprocess
from pathlib import Path

import pytest

from tests.small_project import REPOSITORY, git

#: In place of the check that builds the wheel and uses it, which .ci/run makes.
WHEEL = '#!/bin/sh\ntest ! -e broken && mkdir -p "$2" && touch "$2/regft-1.2.3-py3-none-any.whl"\n'


@pytest.fixture
def repository(tmp_path: Path) -> Path:
    """A repository that is ready for version 1.2.3."""
    for name, text in {
        "regft_core/__init__.py": '__version__ = "1.2.3"\n',
        "CHANGELOG.md": "# Changelog\n\n## 1.2.3 (2026-11-23)\n\n- More.\n",
        ".gitignore": "/dist/\n",
        "tests/wheel/run": WHEEL,
    }.items():
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text(text)
    (tmp_path / "tests/wheel/run").chmod(0o755)
    (tmp_path / ".ci").mkdir()
    shutil.copy(REPOSITORY / ".ci/release", tmp_path / ".ci/release")
    git(tmp_path, "init", "--quiet")
    for key, value in {"user.name": "someone", "user.email": "someone@example.org"}.items():
        git(tmp_path, "config", key, value)
    commit(tmp_path)
    return tmp_path


def commit(folder: Path) -> None:
    git(folder, "add", "--all")
    git(folder, "commit", "--quiet", "--message", "ready")


def release(folder: Path) -> subprocess.CompletedProcess[str]:
    return subprocess.run([".ci/release"], cwd=folder, capture_output=True, text=True, check=False)


def test_what_is_in_order_is_tagged_once_its_wheel_works_and_the_wheel_is_kept(repository: Path) -> None:
    (repository / "broken").touch()
    commit(repository)
    assert release(repository).returncode == 1
    assert git(repository, "tag") == ""
    (repository / "broken").unlink()
    commit(repository)
    done = release(repository)
    assert done.returncode == 0, done.stderr
    assert git(repository, "rev-parse", "v1.2.3^{commit}") == git(repository, "rev-parse", "HEAD")
    assert (repository / "dist/regft-1.2.3-py3-none-any.whl").is_file()
    again = release(repository)
    assert again.returncode == 1
    assert "the tag v1.2.3 exists" in again.stderr


def test_all_that_is_wrong_is_said_and_nothing_is_tagged(repository: Path) -> None:
    (repository / "CHANGELOG.md").write_text("# Changelog\n\n## Unreleased\n\n- More.\n")
    (repository / "regft_core/__init__.py").write_text('__version__ = "1.2.3.dev0"\n')
    done = release(repository)
    assert done.returncode == 1
    for said in ("the version is '1.2.3.dev0'", "files are not committed", "the first heading is '## Unreleased'"):
        assert said in done.stderr
    assert git(repository, "tag") == ""
