"""What the card of a refit says: no row judges it, so its score is what the judged runs let one expect."""

from __future__ import annotations

from typing import Any

from regft_core.models.served import Refit, Served
from regft_core.names import plural
from regft_core.runs.context import Context
from regft_core.serve.out_of_fold import OutOfFold
from regft_core.settings.provenance import described


def expectations(context: Context, served: Served, judged: OutOfFold) -> dict[str, Any]:
    """The facts of ``models.card.model_card`` on scores, and on which rows were trained on.

    Args:
        served: what ``regft.json`` says, of the judged runs too.
        judged: these runs.
    """
    assert served.refit is not None
    return {
        "rows": "all labelled rows of the task"
        if judged.task.drawn
        else "all training rows of the task; its development set stays apart",
        "expected": _expected(context, served, served.refit, judged),
        "scores": _scores(context, judged),
    }


def _expected(context: Context, served: Served, refit: Refit, judged: OutOfFold) -> dict[str, str]:
    """Title -> text."""
    least, most = refit.judged_rows
    each = f"{least:,}" if least == most else f"{least:,} to {most:,}"
    drawn, rows = judged.task.drawn, judged.task.sets["dev"].n
    shown = f"{refit.metric} {refit.expected:.4f}"
    if refit.low is not None and refit.high is not None:
        shown += f" ({refit.confidence:.0%} interval {refit.low:.4f} to {refit.high:.4f})"
    on = f"the {rows:,} rows of the development set"
    if judged.task.folded:
        on = f"rows that they had not seen ({drawn['folds']} folds, {plural(drawn['repeats'], 'repeat')})"
    runs = plural(len(refit.judged_seeds), "run")
    found = {
        "Expected score": shown,
        "Estimated from": f"{runs} with the same settings, each trained on {each} rows and judged on {on}",
    }
    if served.temperature is not None:
        found["Temperature"] = (
            f"{served.temperature:.3f}, fitted on the answers of these runs; `regft predict` divides logits by it, "
            "other programs do not"
        )
    if context.job.values:
        found["Tuned values"] = f"{described(context.job.values)}; the best mean over the trials of these runs"
    return found


def _scores(context: Context, judged: OutOfFold) -> list[dict[str, Any]]:
    """Mean and interval of the judged runs, of every metric on every set."""
    found = []
    for name in judged.task.sets:
        for metric in judged.task.metrics:
            score = judged.score(name, metric, context.params.report)
            low, high = (score.low, score.high) if score.n > 1 else (None, None)
            found.append({"set": name, "metric": metric, "mean": score.mean, "low": low, "high": high, "runs": score.n})
    return found


def weaknesses(context: Context, served: Served, judged: OutOfFold) -> list[str]:
    """Sentences on what weakens a model that no row judges, or what is said of its score."""
    limits, runs = [], len(judged.runs)
    if context.job.size != "full":
        limits.append(f"The expected score is of models trained on {context.job.size} rows.")
    if served.abstain:
        limits.append("The guarantee is that of the judged models; this one was trained on all of their rows.")
    if judged.failed:
        total = runs + len(judged.failed)
        limits.append(f"{len(judged.failed)} of {plural(total, 'judged run')} failed and count nowhere.")
    if low := sum(bool(run.collapsed) for run in judged.runs):
        limits.append(f"{low} of {plural(runs, 'judged run')} collapsed: no better than a constant answer.")
    for name in judged.task.sets:
        limits += dict.fromkeys(f"{name}: {text}" for run in judged.runs if (text := run.sets[name].warning))
    counts = {name: judged.task.duplicates.get(name) for name in context.task["sets"]}
    if shown := ", ".join(f"{count} rows of {name}" for name, count in counts.items() if count):
        limits.append(f"Contamination: {shown} have the text of a training row, so scores there count what was seen.")
    return limits
