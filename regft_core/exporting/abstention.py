"""The confidence below which an exported model does not answer, from its answers to rows that it was not trained on."""

from __future__ import annotations

from regft_core.errors import ModelError
from regft_core.kinds import find
from regft_core.models.served import Abstain
from regft_core.results.work import Work
from regft_core.run.context import Context
from regft_core.run.outputs import cell_of
from regft_core.statistics.abstention import best_guarantee, threshold_for


def sentence(abstain: Abstain) -> str:
    """What the model card says of it."""
    return (
        f"It does not answer where its largest probability is below {abstain.threshold:.3f}. "
        f"At least {abstain.accuracy:.0%} of the answers above are right ({abstain.confidence:.0%} confidence, "
        f"from {abstain.rows} development rows; {abstain.coverage:.0%} of them are answered)."
    )


def abstain_for(context: Context, accuracy: float) -> Abstain:
    """The threshold above which this run's answers are right with ``accuracy``, guaranteed by its development rows.

    Raises:
        ModelError: ``accuracy`` is no share, the task has no classes, or these rows cannot guarantee it.
        DataError: the run was not evaluated.
    """
    job, confidence = context.job, context.params.report.confidence
    if not 0 < accuracy < 1:
        raise ModelError(
            "bad-accuracy", f"--accuracy {accuracy:g} is no share of right answers\n    -> give a number like 0.95"
        )
    if not find(context.task["kind"]).one_label:
        raise ModelError(
            "bad-accuracy",
            f"--accuracy: {job.task} is a {context.task['kind']} task, whose answers are not right or wrong"
            "\n    -> leave --accuracy out",
        )
    rows = Work(context.root).predictions(cell_of(job), job.seed, "dev", context.task["kind"])
    confidences = [max(scores) for scores in rows.scored]
    right = rows.gold == rows.predicted
    found = threshold_for(confidences, right, accuracy, confidence)
    if found is None:
        most = best_guarantee(confidences, right, confidence)
        raise ModelError(
            "no-guarantee",
            f"--accuracy {accuracy:g}: the {len(right)} development rows guarantee no such accuracy for any threshold "
            f"(at {confidence:.0%}); the highest that they guarantee is {most:.3f}"
            f"\n    -> ask for at most {int(1000 * most) / 1000:g}, or judge with more rows",
        )
    return Abstain(
        threshold=found.threshold, accuracy=accuracy, confidence=confidence, coverage=found.coverage, rows=len(right)
    )
