"""Evaluations beyond the scores, one file each, found by their file's name; importing this package needs no torch.

``evaluations:`` in ``params.yaml`` switches them on. They see finished runs only. A file declares, in capitals,

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
    seed (``run.model_of``), which is then in its key, and is trained first where it is missing.

It defines ``run(run: EvaluatedRun) -> Findings``, and optionally ``Config``, a ``StrictModel`` of its options
(``run.options``). ``raise Unfit(reason)`` where a run has nothing to show. Heavy imports belong into functions
or come from ``regft_core.lazy``. Draw random numbers from ``numpy.random.default_rng(regft_core.rng.derive(run.seed,
"<name>.<purpose>"))`` only.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import lru_cache
from types import ModuleType
from typing import Annotated, Any

from pydantic import Field, ValidationError, model_validator

from regft_core.catalogue import EVALUATIONS, KINDS
from regft_core.errors import ConfigError, Problem
from regft_core.names import listing, nearest
from regft_core.schema import StrictModel, named_in
from regft_core.schema.params import Params


class Evaluation(StrictModel):
    name: str
    description: str = Field(alias="DESCRIPTION")
    needs_model: bool = Field(alias="NEEDS_MODEL")
    kinds: tuple[Annotated[str, named_in(KINDS)], ...] | None = Field(None, alias="KINDS", min_length=1)
    scores: bool = Field(False, alias="SCORES")
    tasks: str | None = Field(None, alias="TASKS")
    method: str | None = Field(None, alias="METHOD")
    Config: type[StrictModel] = StrictModel  # no options
    run: Callable[..., Any]

    @model_validator(mode="after")
    def _consistent(self) -> Evaluation:
        options = list(self.Config.model_fields)
        if wrong := {*filter(None, (self.tasks, self.method))} - {*options}:
            raise ValueError(f"TASKS or METHOD is {listing(sorted(wrong))}; name one of the options {listing(options)}")
        if self.method and not self.needs_model:
            raise ValueError("METHOD is for what looks into a model, so NEEDS_MODEL must be True")
        return self

    def fits(self, kind: str) -> bool:
        return self.kinds is None or kind in self.kinds

    def other_tasks(self, options: StrictModel) -> tuple[str, ...]:
        return tuple(getattr(options, self.tasks)) if self.tasks else ()

    def other_method(self, options: StrictModel) -> str | None:
        return getattr(options, self.method) if self.method else None


def find(name: str) -> Evaluation:
    """Return the evaluation ``name``. Raises ValueError where there is none, ConfigError where its file is not one."""
    return _read(name, EVALUATIONS.find(name))


@lru_cache(maxsize=256)
def _read(name: str, module: ModuleType) -> Evaluation:
    """Check what the file of one evaluation declares; raises ConfigError with everything that is wrong."""
    declared = {field.alias or key: key for key, field in Evaluation.model_fields.items() if key != "name"}
    given = {key: value for key, value in vars(module).items() if not key.startswith("_")}
    wrong = []
    for key in filter(str.isupper, given.keys() - declared.keys()):  # constants of its own, but no misspelling
        if near := nearest(key, filter(str.isupper, declared)):
            wrong.append(f"{key} is not a declaration; did you mean {near}?")
    try:
        found = Evaluation(name=name, **{key: given[key] for key in declared if key in given})
    except ValidationError as error:
        wrong += [": ".join([*map(str, one["loc"]), one["msg"]]) for one in error.errors()]
    if wrong:
        hint = "regft_core/evaluate/analyses/__init__.py says what an evaluation's file declares"
        raise ConfigError(
            [Problem("bad-evaluation-file", str(module.__file__), 0, "", message, hint) for message in wrong]
        )
    return found


def enabled(params: Params) -> dict[str, tuple[Evaluation, StrictModel]]:
    return {
        name: (evaluation := find(name), evaluation.Config.model_validate(options))
        for name, options in params.evaluations.items()
    }


def tasks_read(params: Params) -> list[str]:
    return [task for evaluation, options in enabled(params).values() for task in evaluation.other_tasks(options)]
