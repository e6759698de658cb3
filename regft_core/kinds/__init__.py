"""Kinds of task, one file each, found by their file's name; importing this package needs no torch.

A file defines ``KIND``, its own subclass of :class:`Kind`: all that differs between kinds, from the labels in a task's
YAML to the columns of a prediction file. Heavy imports belong into functions or come from ``regft_core.lazy``.
"""

from __future__ import annotations

from functools import lru_cache
from pathlib import Path

from regft_core.catalogue import KINDS
from regft_core.errors import ConfigError, Problem
from regft_core.kinds._base import Collapse, Declared, Kind, WrongLabel

__all__ = ["Collapse", "Declared", "Kind", "WrongLabel", "find", "of_model"]


def find(name: str) -> Kind:
    """Return the kind ``name``. Raises ValueError where there is none, ConfigError where its file is not one."""
    return _find(name, tuple(KINDS.folders))


@lru_cache(maxsize=64)  # asked in every step of a training: the folders are not read again
def _find(name: str, folders: tuple[Path, ...]) -> Kind:
    kind, wrong = getattr(KINDS.find(name), "KIND", None), "KIND is missing: a subclass of Kind"
    if isinstance(kind, type) and issubclass(kind, Kind):
        unsaid = sorted({*kind.__abstractmethods__, *(one for one in Kind.__annotations__ if not hasattr(kind, one))})
        if not unsaid:
            return kind()
        wrong = f"{kind.__name__} does not say: {', '.join(unsaid)}"
    hint = "regft_core/kinds/_base.py lists what a kind answers"
    raise ConfigError([Problem("bad-kind", str(KINDS.find(name).__file__), 0, "", wrong, hint)])


def of_model(problem_type: str | None, outputs: int) -> str | None:
    """The kind of a transformers classifier from elsewhere, by its configuration; None: no kind is like it.

    Without a ``problem_type`` transformers takes one of ``outputs`` for a value and several for alternatives.
    """
    if outputs == 1 or problem_type is None:
        problem_type = "regression" if outputs == 1 else "single_label_classification"
    alike = (name for name in KINDS.names() if find(name).problem_type == problem_type)
    return next((name for name in alike if find(name).has_labels or outputs == 1), None)
