"""Checks of a project's own kind before anything runs: a label is one number, an example has K logits."""

from __future__ import annotations

from collections.abc import Iterator
from numbers import Number

from regft_core.catalogue import shown
from regft_core.errors import Problem
from regft_core.kinds._base import Declared, Kind
from regft_core.lazy import np

HINT = (
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
    return Problem("kind-not-possible", shown(code.co_filename), code.co_firstlineno, where, message, HINT)
