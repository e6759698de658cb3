"""The evaluations that ``params.yaml`` switches on, for one run: each stored, or made, by itself."""

from __future__ import annotations

import hashlib
import io
import logging
import traceback
from collections.abc import Mapping
from functools import cache, cached_property, partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

from pydantic import ValidationError

from regft_core.catalogue import EVALUATIONS
from regft_core.data.examples import read_jsonl, text_key, to_jsonl
from regft_core.data.splits import set_files
from regft_core.disk.canonical import sha256_text
from regft_core.disk.reading import validation_text
from regft_core.errors import DataError, InputChanged, OutOfMemory, StoreError, text_of
from regft_core.evaluate.analyses import Evaluation, enabled
from regft_core.evaluate.analysis_result import Findings, Unfit
from regft_core.lazy import Array, np
from regft_core.names import listing
from regft_core.runs.code import Scope, code_of
from regft_core.runs.context import Context
from regft_core.runs.finished_model import FinishedModel
from regft_core.runs.keys import RUN_FORMAT, scope_of
from regft_core.runs.made_once import Made, made_once
from regft_core.runs.phase import produce
from regft_core.runs.train import beside
from regft_core.runs.work import dataset_folder, described_task
from regft_core.schema import StrictModel

if TYPE_CHECKING:
    from regft_core.evaluate.evaluated import EvaluatedRun, EvaluatedSet, OtherRows

log = logging.getLogger(__name__)


def _scope(evaluation: Evaluation, options: StrictModel, context: Context) -> Scope:
    """The code of an evaluation: its file and, as it declares, what makes models and scores."""
    tasks = [context.project.tasks[task] for task in evaluation.other_tasks(options)]
    kinds = {context.task["kind"], *(task.kind for task in tasks)}
    metrics = {context.task["primary"], *(task.primary for task in tasks)} if evaluation.scores else ()
    model = scope_of("evaluate", source=context.last.source).entries if evaluation.needs_model else ()
    modules = {EVALUATIONS.entry(evaluation.name), *model}
    return scope_of("evaluation", modules, kinds, sorted(metrics))


def evaluation_inputs(context: Context, evaluation: Evaluation, options: StrictModel) -> dict[str, Any]:
    """Return what decides the findings of one evaluation beside the runs that it sees: the same for every seed."""
    shown = ("content", "primary", "positive_label")
    others = {task: described_task(context.root, task) for task in evaluation.other_tasks(options)}
    return {
        "evaluation": evaluation.name,
        "options": options.model_dump(mode="json"),
        "code": code_of(_scope(evaluation, options, context)).sha256,
        "other_rows": {task: {key: described[key] for key in shown} for task, described in others.items()},
    }


def fitting(context: Context) -> list[tuple[Evaluation, StrictModel]]:
    """The evaluations that are switched on and fit the task of a run, with their options."""
    return [one for one in enabled(context.params).values() if one[0].fits(context.task["kind"])]


#: What an evaluation sees of ``task.json``; anything else would be missing from its key.
_TASK = ("kind", "labels", "positive_label", "primary", "sets")


class JudgedRun:
    """One run with its ``logits`` [n, K] of every set, as all evaluations share it."""

    def __init__(self, context: Context, model: FinishedModel, logits: Mapping[str, Array]) -> None:
        self.context, self.model, self.logits = context, model, logits
        self.task: dict[str, Any] = {key: context.task.get(key) for key in _TASK}

    def findings(self) -> dict[str, dict[str, Any]]:
        """Name -> what each evaluation that is switched on and fits the task found out about the run."""
        return {evaluation.name: self._finding(evaluation, options) for evaluation, options in fitting(self.context)}

    def _finding(self, evaluation: Evaluation, options: StrictModel) -> dict[str, Any]:
        """Return the findings of one evaluation, from the store or made now, and where they were made."""

        def find(_: Any, here: Mapping[str, Any]) -> Made:
            described = {
                "description": evaluation.description,
                "options": options.model_dump(mode="json"),
                "environment": here if evaluation.needs_model else None,
            }
            return described | self._find(evaluation, options), {}, {}

        identity, scope = partial(self._identity, evaluation, options), partial(_scope, evaluation, options)
        ensure = partial(made_once, self.context, identity, scope, f"evaluation '{evaluation.name}'", find)
        return self.context.store.read_intact(ensure, lambda stored: stored.result)

    def _identity(self, evaluation: Evaluation, options: StrictModel, context: Context) -> dict[str, Any]:
        """Everything that determines what one evaluation finds out about the run, as a context sees its inputs."""
        method = evaluation.other_method(options)
        return {
            "format": RUN_FORMAT,
            "phase": "evaluation",
            "run": context.last.key(),
            "task": {key: context.task.get(key) for key in _TASK},
            "sets": {
                name: {"rows": context.sets_sha256[name], "logits": hashlib.sha256(to_npy(logits)).hexdigest()}
                for name, logits in self.logits.items()
            },
            **evaluation_inputs(context, evaluation, options),
            **({"other_run": beside(context, method).last.key()} if method else {}),
        }

    def _find(self, evaluation: Evaluation, options: StrictModel) -> dict[str, Any]:
        """Run one evaluation. What it raises is recorded with the place, unless it is not the evaluation's fault."""
        try:
            if evaluation.needs_model and self.model.answered_by is not None:
                raise Unfit(f"'{self.model.answered_by}' answers instead of a model, so there is none to look into")
            return evaluation.run(self.seen_by(evaluation, options)).as_json(self.logits)
        except Unfit as reason:
            return Findings(remarks=(str(reason),)).as_json(self.logits)
        except (InputChanged, StoreError, OutOfMemory, MemoryError):
            raise
        except Exception as error:
            *_, place = traceback.extract_tb(error.__traceback__)
            where = f"{Path(place.filename).name}:{place.lineno}"
            text = validation_text(error) if isinstance(error, ValidationError) else text_of(error)
            failure = f"{type(error).__name__}: {text.partition(chr(10))[0]} ({where})"
            log.warning("evaluation '%s' on %s failed: %s", evaluation.name, self.context.job.name, failure)
            return {"status": "failed", "error": failure, **Findings().as_json(self.logits)}

    def seen_by(self, evaluation: Evaluation, options: StrictModel) -> EvaluatedRun:
        """Return the run with what an evaluation declares that it needs."""
        from regft_core.evaluate.evaluated import EvaluatedRun

        trained = self.model if evaluation.needs_model else None
        others = self._rows_of if evaluation.tasks else None
        models = cache(self._model_of) if evaluation.method else None
        return EvaluatedRun(self.task, self.context.job.seed, options, self._sets, trained, others, models)

    @cached_property
    def _sets(self) -> dict[str, EvaluatedSet]:
        from regft_core.evaluate.evaluated import evaluated_set

        files, decision = set_files(self.context.task), self.model.decision
        rows = {name: read_jsonl(self.context.dataset / files[name]) for name in files if name in self.logits}
        return {name: evaluated_set(name, rows[name], self.logits[name], self.task, decision) for name in rows}

    def _model_of(self, method: str) -> FinishedModel:
        if method == self.context.job.method:
            return self.model
        context = beside(self.context, method)
        trained = produce(context.last).result
        if trained["status"] != "ok":
            raise Unfit(f"the run of '{method}' beside this one failed: {trained['error']}")
        model = FinishedModel(context)
        if model.answered_by is not None:
            raise Unfit(f"'{model.answered_by}' answers instead of a model of '{method}'")
        return model

    def _rows_of(self, task: str) -> OtherRows:
        from regft_core.evaluate.evaluated import OtherRows  # brings numpy, which planning does without

        folder, described = dataset_folder(self.context.root, task), described_task(self.context.root, task)
        if "dev" not in described["content"]:
            what = f"an evaluation reads the development rows of task '{task}', which is evaluated in folds"
            hint = "name a task whose splits.dev is a file or a share"
            raise DataError("no-development-rows", f"{what}\n    -> {hint}")
        rows = {name: read_jsonl(folder / f"{name}.jsonl") for name in ("train", "dev")}
        if changed := [name for name in rows if sha256_text(to_jsonl(rows[name])) != described["content"][name]]:
            files = listing(str(folder / f"{name}.jsonl") for name in changed)
            raise InputChanged("input-changed", f"{files} of task '{task}' changed after it was prepared")
        train, dev = rows["train"], rows["dev"]
        if self.context.task.get("drawn"):  # from rows that the other task may have, too
            judging = {text_key(row) for row in self._sets["dev"].examples}
            train = [row for row in train if text_key(row) not in judging]
        return OtherRows(described, train, dev)


def to_npy(values: Array) -> bytes:
    """The file's content, of an array of any shape."""
    stream = io.BytesIO()
    np.save(stream, np.ascontiguousarray(values), allow_pickle=False)
    return stream.getvalue()


def from_npy(content: bytes) -> Array:
    """Return the array that ``to_npy`` was given; raises ValueError for other content."""
    values: Array = np.load(io.BytesIO(content), allow_pickle=False)
    return values
