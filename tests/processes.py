"""Small helpers for the tests of the run store."""

from __future__ import annotations

import multiprocessing
import os
import subprocess
import sys
import tempfile
import traceback
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
NOBODY = 65_534


@pytest.fixture
def python() -> Callable[..., subprocess.CompletedProcess[str]]:
    """Run a Python program in a fresh process that can import the project."""

    def run(program: str, *arguments: str, **environment: str) -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            [sys.executable, "-c", program, *arguments],
            env={**os.environ, "PYTHONPATH": str(ROOT), "OMP_NUM_THREADS": "1", **environment},
            capture_output=True,
            text=True,
            timeout=120,
        )

    return run


@pytest.fixture
def public_path() -> Iterator[Path]:
    """A directory that other users may enter, unlike ``tmp_path``."""
    with tempfile.TemporaryDirectory(prefix="regft-test-") as folder:
        path = Path(folder)
        path.chmod(0o755)
        yield path
        for parent in [path, *(p for p in path.rglob("*") if p.is_dir())]:
            parent.chmod(0o755)


@pytest.fixture
def as_reader() -> Callable[..., None]:
    """Take write permission from a tree, and all of it for ``secret``; then run a function in a child
    whom permissions bind (not root)."""

    def run(tree: Path, function: Callable[[], object], secret: Path | None = None) -> None:
        # What imports on first use must be there before the child may no longer read the environment.
        import safetensors.torch  # noqa: F401

        for path in [tree, *tree.rglob("*")]:
            path.chmod(0o555 if path.is_dir() else 0o444)
        if secret is not None:
            secret.chmod(0)

        def child() -> None:
            try:
                if os.geteuid() == 0:
                    os.setgroups([])
                    os.setgid(NOBODY)
                    os.setuid(NOBODY)
                function()
            except BaseException:
                traceback.print_exc()
                os._exit(1)
            os._exit(0)

        process = multiprocessing.get_context("fork").Process(target=child)
        process.start()
        process.join(60)
        assert process.exitcode == 0, "see the traceback on stderr"

    return run
