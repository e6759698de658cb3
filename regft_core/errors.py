"""Every error a user can meet: what was given, where, what is allowed, what to do next, and a code that stays."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path


class RegftError(Exception):
    """Base of all errors that regft raises: a ``code`` in kebab-case that means one thing, and ``text`` without it."""

    exit_code = 1

    def __init__(self, code: str, text: str) -> None:
        # Not super().__init__: ``args`` stay what the class was called with, so that subclasses with arguments
        # of their own can be pickled. Worker processes send their errors home.
        self.code, self.text = code, text

    def __str__(self) -> str:
        return _with_code(self.text, self.code)


def text_of(error: Exception) -> str:
    """Return the text of an error without its code, for a message that has a code of its own."""
    return error.text if isinstance(error, RegftError) else str(error)


def _with_code(text: str, code: str) -> str:
    """``text`` with the code at the end of its first line."""
    first, newline, rest = text.partition("\n")
    return f"{first} [{code}]{newline}{rest}"


@dataclass(frozen=True)
class Problem:
    """One thing that is wrong in a configuration file.

    ``code`` is that of :class:`RegftError`, ``file`` relative to the project, ``line`` 1-based (0 without one), ``key``
    the dotted path inside the file.
    """

    code: str
    file: str
    line: int
    key: str
    message: str
    hint: str = ""

    def __str__(self) -> str:
        where = f"{self.file}:{self.line}" if self.line else self.file
        key = f" {self.key}:" if self.key else ""
        hint = f"\n    -> {self.hint}" if self.hint else ""
        return _with_code(f"{where}:{key} {self.message}{hint}", self.code)


class ConfigError(RegftError):
    """All problems found in the configuration, collected and shown together; each has its own code."""

    exit_code = 2

    def __init__(self, problems: list[Problem]) -> None:
        self.problems = problems
        count = f"{len(problems)} problem" + ("s" if len(problems) != 1 else "")
        files = list(dict.fromkeys(p.file for p in problems))
        problems = sorted(problems, key=lambda p: (files.index(p.file), p.line))  # a file at a time, from its top
        super().__init__("configuration", f"configuration: {count}\n" + "\n".join(f"  {p}" for p in problems))

    def __str__(self) -> str:
        return self.text


class DataError(RegftError):
    """A dataset cannot be read or does not match its declaration."""

    exit_code = 3


class ModelError(RegftError):
    """A pretrained model cannot be found, read or understood."""

    exit_code = 4


class RunFailed(RegftError):
    """One seed failed for a reason of its own (loss became NaN); the other seeds continue."""

    exit_code = 5


class OutOfMemory(RegftError):
    """A run did not fit this machine's memory: not a result, so it is never stored as one."""

    exit_code = 8


class StoreError(RegftError):
    """The run store is damaged, locked by another process or cannot be written."""

    exit_code = 6


class DamagedRun(StoreError):
    """A stored run is not what was written; ``RunStore.read_intact`` sets it aside and lets it be produced again."""

    def __init__(self, key: str, path: Path, reason: str) -> None:
        self.key, self.path, self.reason = key, path, reason
        hint = "Delete that directory and repeat the stage: the run is trained again"
        super().__init__("damaged-run", f"run {key} in {path} is damaged: {reason}. {hint}")


class PrunedRun(StoreError):
    """The tensors of a stored run are not (or no longer) there: open the run and train it again."""


class ExportMismatch(RegftError):
    """An exported model does not reproduce the logits of the trained one."""

    exit_code = 7


class InputChanged(RegftError):
    """An input (settings, code, rows, encoder, packages) is not the one in the key or the plan; nothing was stored."""

    exit_code = 9

    def __init__(self, code: str, text: str) -> None:
        super().__init__(code, f"{text}\n    -> nothing was stored; run `dvc repro` again")
