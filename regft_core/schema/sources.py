"""Where a value is from, as one line of text: a paper, released code, or our own reason."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from typing import Annotated, Any

from pydantic import AfterValidator

KINDS = ("paper", "code", "ours")
#: The parts of a method's file that hold settings.
SECTIONS = ("model", "regularisers", "training", "phases")
#: ``owner/repository path:line``, and what to know of it behind a semicolon.
_CODE = re.compile(r"code: [\w.-]+/[\w.-]+ [^\s:]+:\d+(-\d+)?(; \S.*)?")
_WORDS = re.compile(r"(paper|ours): \S.*")


def source_problem(text: str) -> str:
    """Return what is wrong with a source's text; empty when nothing is."""
    if _WORDS.fullmatch(text) or _CODE.fullmatch(text):
        return ""
    if text.startswith("code:"):
        return "released code is cited as 'code: owner/repository path:line', with notes behind '; '"
    return "begins with none of 'paper: ' (section or table), 'code: ' (owner/repository path:line), 'ours: ' (reason)"


def _check(text: str) -> str:
    if wrong := source_problem(text):
        raise ValueError(wrong)
    return text


Source = Annotated[str, AfterValidator(_check)]


def paths(data: Mapping[str, Any]) -> list[str]:
    """The dotted path of every section and every value of a method's file, in its order."""

    def below(part: Mapping[str, Any], at: str) -> Iterator[str]:
        for key, value in part.items():
            yield f"{at}{key}"
            if isinstance(value, Mapping):
                yield from below(value, f"{at}{key}.")

    return list(below({key: data[key] for key in SECTIONS if key in data}, ""))
