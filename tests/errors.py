"""Errors in tests: by code and values; the wording is free."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import pytest

from regft_core.errors import ConfigError, Problem, RegftError


def codes_of(error: RegftError) -> list[str]:
    """The code of an error; for a configuration, those of its problems."""
    return [problem.code for problem in error.problems] if isinstance(error, ConfigError) else [error.code]


def problems_of(call: Callable[..., object], *arguments: Any) -> list[Problem]:
    """The problems of the configuration that a call is refused for."""
    with pytest.raises(ConfigError) as caught:
        call(*arguments)
    return caught.value.problems


@contextmanager
def raises_code(expected: type[RegftError], code: str, *shown: object) -> Iterator[pytest.ExceptionInfo[Any]]:
    """As ``pytest.raises``, for an error with a code (one of the problems, for a configuration).

    ``shown`` are values that the message must show: names, places, numbers, the command that helps.
    """
    with pytest.raises(expected) as caught:
        yield caught
    assert code in codes_of(caught.value), f"{codes_of(caught.value)}\n{caught.value}"
    for value in shown:
        assert str(value) in str(caught.value), f"{value!r} is not in\n{caught.value}"
