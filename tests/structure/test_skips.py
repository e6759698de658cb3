"""A skip for a reason that no list allows fails the run."""

from __future__ import annotations

import pytest

TESTS = """
import pytest

def test_that_runs(): ...

@pytest.mark.skip(reason={reason!r})
def test_that_does_not(): ...
"""
EXTRA = "the extra 'ray' is not installed: there is no ray"


@pytest.mark.parametrize(
    ("reason", "kind", "code"),
    [
        ("needs a CUDA device, and torch sees none", "full", pytest.ExitCode.OK),
        (EXTRA, "quick", pytest.ExitCode.OK),
        (EXTRA, "full", pytest.ExitCode.TESTS_FAILED),
        ("too hard today", "quick", pytest.ExitCode.TESTS_FAILED),
        ("too hard: needs a CUDA device", "quick", pytest.ExitCode.TESTS_FAILED),
    ],
)
def test_only_listed_reasons_are_allowed(pytester: pytest.Pytester, reason: str, kind: str, code: int) -> None:
    pytester.makepyfile(TESTS.format(reason=reason))
    done = pytester.runpytest_inprocess("-p", "tests.skips", "-p", "no:xdist", "--allowed-skips", kind)
    assert done.ret == code
    said = f"*test_that_does_not: {reason}"
    done.stdout.fnmatch_lines([said]) if code else done.stdout.no_fnmatch_line(said)


def test_no_skip_is_refused_without_the_option(pytester: pytest.Pytester) -> None:
    pytester.makepyfile(TESTS.format(reason="too hard today"))
    assert pytester.runpytest_inprocess("-p", "tests.skips", "-p", "no:xdist").ret == pytest.ExitCode.OK
