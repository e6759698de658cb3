"""Every error a user can meet, in one place.

Each carries what was given, where, what is allowed and what to do next; ``stages`` print
``str(error)`` without a traceback and exit with ``exit_code``.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path


class RegftError(Exception):
    """Base of all errors that regft raises on purpose."""

    exit_code = 1


@dataclass(frozen=True)
class Problem:
    """One thing that is wrong in a configuration file.

    ``file`` is relative to the project root, ``line`` is 1-based (0 when the file has no
    such line, for instance a missing key), ``key`` is the dotted path inside the file.
    """

    file: str
    line: int
    key: str
    message: str
    hint: str = ""

    def __str__(self) -> str:
        where = f"{self.file}:{self.line}" if self.line else self.file
        key = f" {self.key}:" if self.key else ""
        hint = f"\n    -> {self.hint}" if self.hint else ""
        return f"{where}:{key} {self.message}{hint}"


class ConfigError(RegftError):
    """All problems found in the configuration, collected and shown together."""

    exit_code = 2

    def __init__(self, problems: list[Problem]) -> None:
        self.problems = problems
        count = f"{len(problems)} problem" + ("s" if len(problems) != 1 else "")
        super().__init__(f"configuration: {count}\n" + "\n".join(f"  {p}" for p in problems))


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
    """A stored run is not what was written.

    Catch it, ``RunStore.set_aside`` the run and produce it again (``RunStore.read_intact`` does so).
    ``path`` is the run's directory, ``reason`` what is wrong with it.
    """

    def __init__(self, key: str, path: Path, reason: str) -> None:
        self.key, self.path, self.reason = key, path, reason
        self.what = f"run {key} in {path} is damaged: {reason}"
        super().__init__(f"{self.what}. Delete that directory and repeat the stage: the run is trained again")

    def __reduce__(self) -> tuple[type[DamagedRun], tuple[str, Path, str]]:
        # Worker processes send their errors home; the default would call __init__ with the message.
        return DamagedRun, (self.key, self.path, self.reason)


class PrunedRun(StoreError):
    """The tensors of a stored run are not (or no longer) there: open the run and train it again."""


class ExportMismatch(RegftError):
    """An exported model does not reproduce the logits of the trained one."""

    exit_code = 7


class CodeChanged(RegftError):
    """The code on disk is not the code that this process runs, so a result would be filed under another's key."""

    exit_code = 9


class InputChanged(RegftError):
    """A file that a run reads is not (or no longer) the one in the run's key; nothing was stored.

    Args:
        what: the input, with its path.
        when: when the difference was met.
    """

    exit_code = 11

    def __init__(self, what: str, when: str = "was replaced while this run was being computed") -> None:
        self.what, self.when = what, when
        super().__init__(f"{what} {when}\n    -> nothing was stored; leave the file alone and run `dvc repro` again")

    def __reduce__(self) -> tuple[type[InputChanged], tuple[str, str]]:
        # Worker processes send their errors home; the default would call __init__ with the message.
        return InputChanged, (self.what, self.when)


class FactsChanged(RegftError):
    """Code, configuration, encoder or packages changed while a stage ran; nothing was committed."""

    exit_code = 10
