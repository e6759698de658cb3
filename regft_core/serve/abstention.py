"""The confidence below which an exported model does not answer, from answers to rows that no model was trained on."""

from __future__ import annotations

from regft_core.errors import DataError, ModelError
from regft_core.kinds import find
from regft_core.models.export_record import Abstain
from regft_core.names import plural
from regft_core.runs.context import Context
from regft_core.serve.out_of_fold import OutOfFold
from regft_core.statistics.abstention import best_guarantee, effective, threshold_for


def sentence(abstain: Abstain) -> str:
    """Sentence of the model card."""
    models = "" if abstain.models == 1 else f", each judged by one of {abstain.models} models that had not seen it"
    counted = ""
    if abstain.groups is not None:
        counted = f"; rows of one group count as one answer, {abstain.groups:.1f} in effect"
    return (
        f"It does not answer where its largest probability is below {abstain.threshold:.3f}. "
        f"At least {abstain.accuracy:.0%} of the answers above are right ({abstain.confidence:.0%} confidence, "
        f"from {abstain.rows} development rows{models}{counted}; {abstain.coverage:.0%} of them are answered)."
    )


def check_accuracy(context: Context, accuracy: float) -> None:
    """Raise ModelError where ``accuracy`` is no share, or the task has no answers that are right or wrong."""
    if not 0 < accuracy < 1:
        raise ModelError(
            "bad-accuracy", f"--accuracy {accuracy:g} is not a share of right answers\n    -> give a number like 0.95"
        )
    if not find(context.task["kind"]).one_label:
        raise ModelError(
            "bad-accuracy",
            f"--accuracy: {context.job.task} is a {context.task['kind']} task, whose answers are not right or wrong"
            "\n    -> leave --accuracy out",
        )


def abstain_for(context: Context, accuracy: float, judged: OutOfFold, temperature: float = 1.0) -> Abstain:
    """The threshold above which answers are right with ``accuracy``, guaranteed by rows that judge.

    Each row counts once (``OutOfFold.once``). Rows of one group count as one answer. With folds the guarantee is that
    of the folds' models together. A temperature, fitted on the same rows, leaves the order of the rows of two labels as
    it is, and so the guarantee; of more labels it is one number that was fitted.

    Args:
        judged: the cell of the run.
        temperature: of the probabilities that the model will give.

    Raises:
        ModelError: these rows cannot guarantee it.
        DataError: the run was not evaluated.
    """
    job, confidence = context.job, context.params.report.confidence
    if not job.refit and job.seed not in judged.seeds:
        raise DataError(
            "not-judged",
            f"--accuracy: seed {job.seed} of {job.method} on {job.task}-{job.size} was not evaluated"
            "\n    -> run `dvc repro` (stage evaluate), then this again",
        )
    answers = judged.once(job.seed)
    confidences = answers.confidences(temperature)
    found = threshold_for(confidences, answers.right, accuracy, confidence, answers.groups)
    grouped = None if answers.groups is None else effective(answers.groups)
    if found is None:
        most = best_guarantee(confidences, answers.right, confidence, answers.groups)
        of_groups = "" if grouped is None else f" (in {grouped:.1f} groups in effect, and a group counts as one answer)"
        raise ModelError(
            "no-guarantee",
            f"--accuracy {accuracy:g}: the {plural(len(answers.right), 'development row')}{of_groups} guarantee no "
            f"such accuracy for any threshold (at {confidence:.0%}); the highest that they guarantee is {most:.3f}"
            f"\n    -> ask for at most {int(1000 * most) / 1000:g}, or judge with more rows",
        )
    return Abstain(
        threshold=found.threshold,
        accuracy=accuracy,
        confidence=confidence,
        coverage=found.coverage,
        rows=len(answers.right),
        models=answers.models,
        groups=grouped,
    )
