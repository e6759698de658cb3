"""Evaluations beyond the scores, one file each, found by their file's name; importing this package needs no torch.

``evaluations:`` in ``params.yaml`` switches them on. They see finished runs only, so switching one on
trains and scores no run again. An evaluation is a file of this folder. It declares, in capitals,

``DESCRIPTION``
    one line for the report.
``NEEDS_MODEL``
    False when stored logits, gold labels and texts are enough, else True.
``KINDS`` (optional)
    the kinds of task that it fits, of the files of ``regft_core/kinds``; every kind when absent.
``SCORES`` (optional)
    True when it scores by the task's metric (``run.score``), whose file is then in its key.
``TASKS`` (optional)
    the option that lists other tasks whose rows it reads (``run.rows_of``).
``METHOD`` (optional)
    the option that names a method of the grid, or is None: it looks into that method's run of the same task, size and
    seed (``run.model_of``). That run is then in its key, and is trained first where it is missing.

A run that an evaluation has nothing to say about is answered by ``raise Unfit(reason)``, which becomes a remark
(``regft_core/evaluate/analysis_result.py``); so is one without a model of its own where ``NEEDS_MODEL = True``.

The file defines ``run(run: EvaluatedRun) -> Findings`` (``regft_core/evaluate``), and optionally ``Config``, a
``StrictModel`` of its options, which ``run.options`` is an instance of. Heavy imports belong into functions
or come from ``regft_core.lazy``: the validator reads these files too. Draw random numbers from
``numpy.random.default_rng(regft_core.rng.derive(run.seed, "<name>.<purpose>"))`` only.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import lru_cache
from types import ModuleType
from typing import TYPE_CHECKING, Any

from regft_core.catalogue import EVALUATIONS, KINDS
from regft_core.errors import ConfigError, Problem
from regft_core.names import nearest
from regft_core.schema import StrictModel
from regft_core.schema.params import Params

if TYPE_CHECKING:
    from regft_core.evaluate.analysis_result import Findings
    from regft_core.evaluate.evaluated import EvaluatedRun

_REQUIRED = ("DESCRIPTION", "NEEDS_MODEL")
_OPTIONAL = ("KINDS", "SCORES", "TASKS", "METHOD")


class NoOptions(StrictModel):
    """An evaluation without options."""


@dataclass(frozen=True)
class Evaluation:
    """One evaluation, as its file declares it."""

    name: str
    description: str
    #: Kinds of task that it fits; None: every one.
    kinds: tuple[str, ...] | None
    needs_model: bool
    scores: bool
    #: The option that lists tasks whose rows it reads.
    tasks: str | None
    #: The option that names a method whose run it looks into.
    method: str | None
    Config: type[StrictModel]
    run: Callable[[EvaluatedRun], Findings]

    def fits(self, kind: str) -> bool:
        """Whether it has something to say about tasks of this kind."""
        return self.kinds is None or kind in self.kinds

    def other_tasks(self, options: StrictModel) -> tuple[str, ...]:
        """Tasks whose rows it reads under these options."""
        return tuple(getattr(options, self.tasks)) if self.tasks else ()

    def other_method(self, options: StrictModel) -> str | None:
        """The method whose run it looks into under these options."""
        return getattr(options, self.method) if self.method else None


def find(name: str) -> Evaluation:
    """Return the evaluation ``name``.

    Raises:
        ValueError: there is no such evaluation.
        ConfigError: its file is not one.
    """
    return _read(name, EVALUATIONS.find(name))


@lru_cache(maxsize=256)
def _read(name: str, module: ModuleType) -> Evaluation:
    """Check what the file of one evaluation declares; raises ConfigError with everything that is wrong."""
    given = {key: value for key, value in vars(module).items() if key.isupper() and not key.startswith("_")}
    wrong = [f"{key} is missing" for key in _REQUIRED if key not in given]
    if not callable(getattr(module, "run", None)):
        wrong.append("run(run: EvaluatedRun) -> Findings is missing")
    for key in given.keys() - {*_REQUIRED, *_OPTIONAL}:  # a file may have constants of its own, but no misspelling
        if near := nearest(key, _REQUIRED + _OPTIONAL):
            wrong.append(f"{key} is not a declaration; did you mean {near}?")
    kinds, needs_model = given.get("KINDS"), given.get("NEEDS_MODEL", False)
    if kinds is not None and (not isinstance(kinds, tuple) or not kinds or set(kinds) - set(KINDS.names())):
        wrong.append(f"KINDS is {kinds!r}; give a tuple of some of {', '.join(KINDS.names())}, or leave it out")
    config: Any = getattr(module, "Config", NoOptions)
    if not (isinstance(config, type) and issubclass(config, StrictModel)):
        wrong.append("Config is not a StrictModel (regft_core.schema)")
        config = NoOptions
    options = f"({', '.join(config.model_fields) or 'none'})"
    if not isinstance(needs_model, bool):
        wrong.append(f"NEEDS_MODEL is {needs_model!r}; give True or False")
    for key in ("TASKS", "METHOD"):
        if key in given and given[key] not in config.model_fields:
            wrong.append(f"{key} is {given[key]!r}; name one of the options {options}")
    if given.get("METHOD") and needs_model is not True:
        wrong.append("METHOD is for what looks into a model, so NEEDS_MODEL must be True")
    if wrong:
        hint = "regft_core/evaluate/analyses/__init__.py says what an evaluation's file declares"
        raise ConfigError(
            [Problem("bad-evaluation-file", str(module.__file__), 0, "", message, hint) for message in wrong]
        )
    return Evaluation(
        name=name,
        description=str(given["DESCRIPTION"]),
        kinds=kinds,
        needs_model=needs_model,
        scores=bool(given.get("SCORES", False)),
        tasks=given.get("TASKS"),
        method=given.get("METHOD"),
        Config=config,
        run=module.run,
    )


def enabled(params: Params) -> dict[str, tuple[Evaluation, StrictModel]]:
    """Name -> the evaluation and its options, in the order of ``params.yaml``."""
    found = {}
    for name, options in params.evaluations.items():
        evaluation = find(name)
        found[name] = (evaluation, evaluation.Config.model_validate(options))
    return found


def tasks_read(params: Params) -> list[str]:
    """Tasks whose rows the evaluations read, beside that of each run."""
    return [task for evaluation, options in enabled(params).values() for task in evaluation.other_tasks(options)]
