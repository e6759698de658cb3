"""A skip for a reason that no list allows fails the run."""

from __future__ import annotations

import pytest

TESTS = """
import pytest

@pytest.mark.parametrize("reason", {reasons!r})
def test_that_does_not_run(reason):
    pytest.skip(reason)
"""
GPU, EXTRA = "needs a CUDA device, and torch sees none", "the extra 'ray' is not installed: there is no ray"
WRONG = ["too hard today", "too hard: needs a CUDA device"]


@pytest.mark.parametrize(
    ("kind", "allowed", "refused"),
    [("quick", [GPU, EXTRA], []), ("quick", [GPU, EXTRA], WRONG), ("full", [GPU], [EXTRA]), (None, WRONG, [])],
)
def test_only_listed_reasons_are_allowed(
    pytester: pytest.Pytester, kind: str | None, allowed: list[str], refused: list[str]
) -> None:
    pytester.makepyfile(TESTS.format(reasons=[*allowed, *refused]))
    options = ["--allowed-skips", kind] if kind else []
    done = pytester.runpytest_inprocess("-p", "tests.skips", "-p", "no:xdist", *options)
    assert done.ret == (pytest.ExitCode.TESTS_FAILED if refused else pytest.ExitCode.OK)
    said = [line for line in done.outlines if "::test_that_does_not_run[" in line]
    assert [line.split("]: ", 1)[1] for line in said] == refused
