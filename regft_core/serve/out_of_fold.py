"""Out-of-fold answers: those of a method's evaluated runs, of all seeds, to rows that they were not trained on."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from regft_core.errors import DataError, ModelError, RunFailed
from regft_core.kinds import find
from regft_core.models.export_record import Abstain, Refit
from regft_core.names import plural
from regft_core.runs.context import Context
from regft_core.runs.records import RunRecord
from regft_core.runs.work import Predictions, Work
from regft_core.schema.method import FINETUNE
from regft_core.settings.project import Cell
from regft_core.statistics.confidence import best_guarantee, effective, fit_temperature, threshold_for


class Answers(NamedTuple):
    """Answers to n rows of one set, of so many ``models``; ``scores`` are [n, K] probabilities, or [n, 1] values."""

    ids: list[str]
    gold: npt.NDArray[Any]
    predicted: npt.NDArray[Any]
    scores: npt.NDArray[np.float64]
    groups: npt.NDArray[Any] | None
    models: int

    @property
    def right(self) -> npt.NDArray[np.bool_]:
        """[n] whether each is right."""
        return self.gold == self.predicted

    def confidences(self, temperature: float = 1.0) -> npt.NDArray[np.float64]:
        """[n] largest probability, at a temperature."""
        return np.exp(at_temperature(self.scores, temperature)).max(axis=1)


def at_temperature(scores: npt.NDArray[np.float64], temperature: float) -> npt.NDArray[np.float64]:
    """Log-probabilities [n, K] at a temperature, of probabilities [n, K] at 1."""
    logs = np.log(np.maximum(scores, np.finfo(np.float64).tiny)) / temperature
    return logs - np.logaddexp.reduce(logs, axis=1, keepdims=True)


class OutOfFold:
    """The evaluated ``runs`` of one cell, of the ``seeds`` that ran to the end; the others have ``failed``."""

    def __init__(self, root: Path, cell: Cell, seeds: Sequence[int]) -> None:
        self._work, self._cell = Work(root), cell
        self.task = self._work.task(cell.task)
        runs = {run.seed: run for run in self._work.evaluation(cell).runs}
        self.runs: list[RunRecord] = [runs[seed] for seed in seeds if seed in runs and runs[seed].ok]
        self.seeds = [run.seed for run in self.runs]
        self.failed = [seed for seed in seeds if seed not in self.seeds]
        if not self.runs:
            message = f"all seeds of {cell.directory} failed, so nothing is known of its score"
            raise RunFailed("no-model", f"{message}\n    -> `dvc repro` says why they failed")

    def answers(self, name: str) -> dict[int, Predictions]:
        """Seed -> its predictions on a set."""
        return {seed: self._work.predictions(self._cell, seed, name, self.task.kind) for seed in self.seeds}

    def mean(self, name: str, metric: str) -> float:
        """The mean over seeds of a metric on a set."""
        return math.fsum(run.sets[name].metrics[metric] for run in self.runs) / len(self.runs)

    def expected(self, rows: int, confidence: float, reported: Mapping[str, Any]) -> Refit:
        """Expected score of a model of all ``rows``: the report's decision, else the runs' mean, without interval."""
        primary = self.task.primary
        folds = self.task.drawn.get("folds")
        if folds and self._cell.size == "full":
            of = self.task.drawn["rows"]
            judged_rows = [of[f"{seed // folds}-{seed % folds}"]["train"] for seed in self.seeds]
        else:
            judged_rows = [self._work.subsample(self._cell.task, str(self._cell.size)).n]
        told = reported.get("decision") or reported.get("dev", {}).get(primary, {})
        return Refit(
            rows=rows,
            judged_rows=(min(judged_rows), max(judged_rows)),
            judged_seeds=tuple(self.seeds),
            temperature=self.temperature(),
            metric=primary,
            confidence=confidence,
            expected=told["expected"] if "expected" in told else self.mean("dev", primary),
            low=told.get("low"),
            high=told.get("high"),
        )

    def once(self, seed: int, name: str = "dev") -> Answers:
        """One answer to each row of a set: with folds, that of the repeat of ``seed``, else of the next one.

        Without folds all are those of ``seed``, or of the first seed where that has failed.
        """
        folds = self.task.drawn.get("folds", 1)
        order = sorted(self.seeds, key=lambda other: other // folds != seed // folds)
        folded = name == "dev" and self.task.folded
        chosen: dict[str, tuple[Any, Any, list[float], int]] = {}
        answers = self.answers(name)
        for other in order if folded else order[:1]:
            found = answers[other]
            for idx, gold, predicted, scores in zip(found.ids, found.gold, found.predicted, found.scored, strict=True):
                chosen.setdefault(idx, (gold, predicted, scores, other))
        group_of = self._work.groups(self._cell.task).get(name, {})
        labels, decided, probabilities, models = zip(*chosen.values(), strict=True)
        return Answers(
            list(chosen),
            np.array(labels),
            np.array(decided),
            np.array(probabilities, dtype=np.float64),
            np.array([group_of[idx] for idx in chosen]) if group_of else None,
            len(set(models)),
        )

    def temperature(self) -> float | None:
        """The temperature of the largest likelihood; None with several labels, or where no answer is wrong."""
        if not find(self.task.kind).one_label:
            return None
        every = list(self.answers("dev").values())
        scores = np.concatenate([np.array(predictions.scored, dtype=np.float64) for predictions in every])
        gold = np.concatenate([predictions.gold for predictions in every])
        if (scores.argmax(axis=1) == gold).all():
            return None
        return fit_temperature(lambda temperature: at_temperature(scores, temperature), gold)


def sentence(abstain: Abstain) -> str:
    """Return the sentence of the model card."""
    models = "" if abstain.models == 1 else f", each evaluated by one of {abstain.models} models that had not seen it"
    counted = ""
    if abstain.groups is not None:
        counted = f"; rows of one group count as one answer, {abstain.groups:.1f} in effect"
    return (
        f"It does not answer where its largest probability is below {abstain.threshold:.3f}. "
        f"At least {100 * abstain.accuracy:g}% of the answers above are right ({abstain.confidence:.0%} confidence, "
        f"from {abstain.rows} development rows{models}{counted}; {abstain.coverage:.0%} of them are answered)."
    )


def abstain_for(context: Context, accuracy: float, judged: OutOfFold, temperature: float = 1.0) -> Abstain:
    """The threshold above which answers are right with ``accuracy``, guaranteed by rows that judge.

    Each row counts once (``OutOfFold.once``). Rows of one group count as one answer. With folds the guarantee is that
    of the folds' models together. A temperature, fitted on the same rows, leaves the order of the rows of two labels as
    it is, and so the guarantee; of more labels it is one number that was fitted.

    Raises:
        ModelError: these rows cannot guarantee it; it is no share, or the answers of the task are not right or wrong.
        DataError: the run was not evaluated.
    """
    job, confidence, kind = context.job, context.params.report.confidence, context.task["kind"]
    if not 0 < accuracy < 1:
        message = f"--accuracy {accuracy:g} is not a share of right answers"
        raise ModelError("bad-accuracy", f"{message}\n    -> give a number like 0.95")
    if not find(kind).one_label:
        message = f"--accuracy: {job.task} is a {kind} task, whose answers are not right or wrong"
        raise ModelError("bad-accuracy", f"{message}\n    -> leave --accuracy out")
    if not job.refit and context.key(FINETUNE) not in [run.key for run in judged.runs]:
        message = f"--accuracy: seed {job.seed} of {job.method} on {job.task}-{job.size} was not evaluated"
        raise DataError("not-judged", f"{message}\n    -> run `dvc repro` (stage evaluate), then this again")
    answers = judged.once(job.seed)
    confidences = answers.confidences(temperature)
    found = threshold_for(confidences, answers.right, accuracy, confidence, answers.groups)
    grouped = None if answers.groups is None else effective(answers.groups)
    if found is None:
        most = best_guarantee(confidences, answers.right, confidence, answers.groups)
        of_groups = "" if grouped is None else f" ({grouped:.1f} groups in effect)"
        rows = f"{plural(len(answers.right), 'development row')}{of_groups}"
        message = f"--accuracy {accuracy:g}: {rows} guarantee at most {most:.3f} (at {confidence:.0%})"
        hint = f"ask for at most {int(1000 * most) / 1000:g}, or " * (most >= 0.001) + "evaluate on more rows"
        raise ModelError("no-guarantee", f"{message}\n    -> {hint}")
    return Abstain(
        threshold=found.threshold,
        accuracy=accuracy,
        confidence=confidence,
        coverage=found.coverage,
        rows=len(answers.right),
        models=answers.models,
        groups=grouped,
    )
