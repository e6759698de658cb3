"""Kinds of task, one file each, found by their file's name; importing this package needs no torch.

A file of this folder defines ``KIND``, its own subclass of :class:`Kind`: all that differs between
kinds, from the labels in a task's YAML to the columns of a prediction file. Adding a kind is adding a file (and the
metrics that fit it). The file in use is in the key of a run, not those of other kinds.

Heavy imports belong into functions or come from ``regft_core.lazy``: the validator reads these files too.
"""

from __future__ import annotations

from collections.abc import Iterator
from functools import lru_cache
from numbers import Number
from pathlib import Path

from regft_core.catalogue import KINDS, shown
from regft_core.errors import ConfigError, Problem
from regft_core.kinds._base import Collapse, Declared, Kind, WrongLabel
from regft_core.lazy import np

__all__ = ["Collapse", "Declared", "Kind", "WrongLabel", "find", "impossible", "of_model"]


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
    """The kind of a transformers classifier from elsewhere, by what its configuration says; None: no kind is like it.

    Args:
        problem_type: ``problem_type`` of the configuration. Where there is none, transformers takes a single output
            for a value and several for alternatives.
        outputs: number of logits; no kind gives several values.
    """
    if outputs == 1 or problem_type is None:
        problem_type = "regression" if outputs == 1 else "single_label_classification"
    alike = (name for name in KINDS.names() if find(name).problem_type == problem_type)
    return next((name for name in alike if find(name).has_labels or outputs == 1), None)


_HINT = (
    "an example of a kind has one number as its label (several labels are the bits of one) and one row of K logits; a "
    "label for every word, a span or a text is no kind of task"
)


def impossible(kind: Kind, declared: Declared) -> Iterator[Problem]:
    """Yield what no training could work with, with the line of the method at fault.

    ``declared``: the labels of a task, from which values of a file are made up.
    """
    names = [*(declared.label_values or ()), *(declared.labels or ())]
    for raw in (*names, declared.label_delimiter.join(names), *map(str, declared.range or ()), "0", "1"):
        try:
            label = kind.read_label(raw, declared)
        except Exception:  # made up here: rows of the file are read, and refused, with their place
            continue
        if not isinstance(label, Number):
            yield _problem(kind, "read_label", f"reads {raw!r} as {label!r}, which is no number")
            return
    try:
        outputs = len(kind.output_names(declared.labels))
    except ValueError:  # labels that do not fit are told where the task is read
        return
    except Exception as error:  # the kind's own code
        yield _problem(kind, "output_names", f"raises {type(error).__name__}: {error}")
        return
    logits = np.random.default_rng(0).normal(size=(3, outputs))
    to_set, width = (np.arange(outputs), outputs) if kind.has_labels else (np.arange(0), 1)
    for name, wanted, more in (("predictions", [3], ()), ("scores", [3, width], (width,))):
        try:
            shape = [*np.shape(getattr(kind, name)(logits, to_set, *more))]
        except Exception as error:  # the kind's own code
            yield _problem(kind, name, f"raises {type(error).__name__} on logits [3, {outputs}]: {error}")
            continue
        if shape != wanted:
            yield _problem(kind, name, f"gives an array {shape} of logits [3, {outputs}]; wanted is {wanted}")


def _problem(kind: Kind, name: str, message: str) -> Problem:
    code, where = getattr(type(kind), name).__code__, f"{type(kind).__name__}.{name}"
    return Problem("kind-not-possible", shown(code.co_filename), code.co_firstlineno, where, message, _HINT)
