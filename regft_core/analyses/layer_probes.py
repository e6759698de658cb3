"""What a linear classifier reads off every layer, on other tasks (as HyPe, Yuan et al. 2023, figure 3, does).

The encoder stays as fine-tuning left it. Per task of ``tasks``, ``rows`` training rows fit the probe and ``test_rows``
others judge it; both are drawn with the run's seed, so all arms of a seed share them. One vector per example is the
mean over its tokens (both rows of a pair that is encoded separately, with their difference and product); features
are standardised; the probe is a logistic regression (accuracy), or ridge regression (Pearson) for a task with
values. ``pretrained`` is the encoder as it was loaded, under the same probes.
"""

from __future__ import annotations

from random import Random
from typing import TYPE_CHECKING, Annotated, Any, Literal

from pydantic import Field

from regft_core.config.schema import Name, StrictModel
from regft_core.data.shuffle import shuffled
from regft_core.kinds import find
from regft_core.lazy import np
from regft_core.rng import derive
from regft_core.scoring.findings import RUN, Findings, Plot, Table, Unfit

if TYPE_CHECKING:
    import numpy.typing as npt

    from regft_core.data.encode import Encoded
    from regft_core.scoring.evaluated import EvaluatedRun, OtherRows

DESCRIPTION = "what linear probes of every layer know of other tasks"
KINDS = ("classification", "regression")
NEEDS_MODEL = True
TASKS = "tasks"


class Config(StrictModel):
    tasks: Annotated[tuple[Name, ...], Field(strict=False, min_length=1)] = Field(
        description="files of pipelines/tasks whose training rows are probed"
    )
    rows: int = Field(400, ge=4, description="training rows that fit a probe")
    test_rows: int = Field(400, ge=4, description="other training rows that judge it")
    pooling: Literal["mean", "cls"] = Field("mean", description="mean over tokens, or the family's summary token")


def run(run: EvaluatedRun) -> Findings:
    rows: list[tuple[str, int, float, float]] = []
    scalars: dict[str, float] = {}
    for task in dict.fromkeys(run.options.tasks):
        other = run.rows_of(task)
        fit, test = draw(other, run)
        both = [*fit, *test]
        encoded = run.trained.encode([other.examples[row] for row in both])
        gold = np.asarray([other.examples[row].label for row in both])
        models = (run.trained.model, run.trained.pretrained)
        own, before = ([probed(x, gold, len(fit), other.kind) for x in features(run, m, encoded)] for m in models)
        rows += [(task, layer, value, before[layer]) for layer, value in enumerate(own)]
        scalars |= {f"{task}.best": max(own), f"{task}.last": own[-1], f"{task}.last_pretrained": before[-1]}
    plot = Plot("layer", "score", panels="sets", group="task", baseline="pretrained", paired=True)
    table = Table(("task", "layer", "score", "pretrained"), tuple(rows), keys=2, plot=plot)
    return Findings({RUN: scalars}, {RUN: {"probes": table}}, dict.fromkeys(scalars, (-1.0, 1.0)))


def draw(other: OtherRows, run: EvaluatedRun) -> tuple[list[int], list[int]]:
    """Rows that fit a probe and others that judge it, no text in both; Unfit when there are too few."""
    order = shuffled(range(len(other.examples)), Random(derive(run.seed, "layer_probes.rows", other.task)))
    wanted = min(run.options.rows, len(order) // 2)
    fit = order[:wanted]
    seen = {(other.examples[row].text, other.examples[row].text_pair) for row in fit}
    rest = [row for row in order[wanted:] if (other.examples[row].text, other.examples[row].text_pair) not in seen]
    if wanted < 2 or len(rest) < 2:
        raise Unfit(f"task '{other.task}' has {len(order)} training rows, too few to fit a probe and to judge it")
    return fit, rest[: run.options.test_rows]


def features(run: EvaluatedRun, model: Any, encoded: Encoded) -> list[npt.NDArray[Any]]:
    """Layer -> [n, F] vectors in the order of ``encoded``."""
    from regft_core.scoring.hidden import layer_states, pooled

    found: list[list[Any]] = []
    for batch in run.trained.batches(encoded):
        for states in layer_states(model, batch):
            if states.layer == len(found):
                found.append([None] * len(encoded))
            vectors = pooled(model, states, run.options.pooling, batch.rows_per_example).cpu().numpy()
            for index, vector in zip(batch.indices.tolist(), vectors, strict=True):
                found[states.layer][index] = vector
    return [np.stack(own).astype(np.float64) for own in found]


def probed(values: npt.NDArray[Any], gold: npt.NDArray[Any], fit: int, kind: str) -> float:
    """Accuracy (or Pearson) on the rows after the first ``fit`` of a probe that the first ``fit`` rows fitted."""
    from sklearn.linear_model import LogisticRegression, Ridge
    from sklearn.preprocessing import StandardScaler

    scaler = StandardScaler().fit(values[:fit])
    train, test = scaler.transform(values[:fit]), scaler.transform(values[fit:])
    if not find(kind).has_labels:
        predicted = Ridge(alpha=float(train.shape[1])).fit(train, gold[:fit]).predict(test)
        if np.std(predicted) == 0 or np.std(gold[fit:]) == 0:
            return 0.0
        return float(np.corrcoef(predicted, gold[fit:])[0, 1])
    if len(np.unique(gold[:fit])) == 1:
        return float((gold[fit:] == gold[0]).mean())
    probe = LogisticRegression(C=0.1, max_iter=500).fit(train, gold[:fit])
    return float((probe.predict(test) == gold[fit:]).mean())
