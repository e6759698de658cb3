"""Every evaluation on a set that merges some of the labels, and lists them in another order.

A label map only renames: everything must be what it is for a model that has the set's labels itself. A new evaluation
is tested here by being found.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np
import pytest

from regft_core.catalogue import EVALUATIONS
from regft_core.data.examples import Example
from regft_core.evaluate import analyses
from regft_core.evaluate.analysis_result import Findings
from regft_core.evaluate.evaluated import EvaluatedSet, OtherRows, label_indices
from tests.evaluate.tiny_run import TinyModel, evaluated, other_task
from tests.methods.harness import examples

#: The model's own labels, in the order of its outputs.
OWN = ("neutral", "wrong", "right")
MERGED, TO_MERGED = ("right", "other"), {"neutral": "other", "wrong": "other", "right": "right"}
OPTIONS: dict[str, dict[str, Any]] = {"layer_probes": {"tasks": ["t"], "rows": 20, "test_rows": 20}}
NAMES = EVALUATIONS.names()


def logsumexp(logits: Any) -> Any:
    return np.log(np.exp(logits.astype(np.float64)).sum(axis=1))


def maximum(logits: Any) -> Any:
    """The larger of two own labels wins over the third exactly where the merged prediction says so."""
    return logits.max(axis=1)


def merged(logits: Any, combine: Callable[[Any], Any]) -> Any:
    """[n, 2] logits of a model with the labels ``MERGED`` of its own."""
    return np.stack([logits[:, 2], combine(logits[:, :2])], axis=1)


class Merging(TinyModel):
    """The same model, with the labels ``MERGED`` of its own."""

    def predict(self, encoded: Any) -> Any:
        return merged(super().predict(encoded), maximum)


#: Rows of another task, which has labels of its own.
ROWS = [Example(f"o{i}", f"{'good' if i % 2 else 'bad'} film {'a ' * i}", None, i % 2) for i in range(60)]
OTHER = {"t": OtherRows(other_task(), ROWS[:40], ROWS[40:])}


def run(name: str, trained: Any, judged: EvaluatedSet, own: Sequence[str]) -> Findings:
    task = {"labels": list(own), "primary": "f1", "positive_label": "right"}
    others = OTHER if analyses.find(name).tasks else None
    return evaluated(name, trained, judged, others=others, task=task, **OPTIONS.get(name, {}))


def a_set(
    given: Sequence[Example],
    logits: Any,
    gold: Sequence[str],
    own: Sequence[str],
    labels: Sequence[str],
    to: Any = None,
) -> EvaluatedSet:
    """A set with the ``labels`` in this order; ``gold`` are names of them."""
    to_set = label_indices(own, labels, to)
    indices = np.asarray([list(labels).index(name) for name in gold])
    return EvaluatedSet("dev", "classification", logits, indices, given, tuple(labels), to_set)


def plain(found: Findings) -> tuple[Mapping[str, Any], dict[str, list[str]]]:
    """Numbers and tables whose order of labels, in rows and columns, is no part of them."""

    def cell(value: Any) -> str:
        # 0 for the -0 and the rounding of sums in another order.
        return f"{value + 0.0:.6f}" if isinstance(value, float) and math.isfinite(value) else str(value)

    tables = {
        f"{place}.{name}": sorted(str(sorted(zip(table.columns, map(cell, row), strict=True))) for row in table.rows)
        for place, named in found.tables.items()
        for name, table in named.items()
    }
    return found.scalars, tables


def same(one: Findings, other: Findings) -> None:
    (scalars, tables), (expected, wanted) = plain(one), plain(other)
    assert tables == wanted
    assert scalars.keys() == expected.keys()
    for place, values in scalars.items():
        assert values == pytest.approx(expected[place], abs=1e-9), place


@pytest.fixture(scope="module")
def judged() -> Any:
    """(examples, logits, names of the gold labels): a model that is right two times out of three."""

    def make(trained: TinyModel, real: bool) -> tuple[Any, Any, list[str]]:
        rng = np.random.default_rng(3)
        given = examples(30, labels=3)
        logits = trained.predict(trained.encode(given)) if real else rng.normal(size=(30, 3))
        said = logits.argmax(axis=1)
        gold = [OWN[(said[i] + (i % 3 == 0) * (1 + i % 2)) % 3] for i in range(30)]
        assert len(set(gold)) == len(set(said.tolist())) == 3
        return given, logits, gold

    return make


@pytest.fixture(scope="module")
def trained() -> TinyModel:
    """A model that predicts all three labels."""
    found = TinyModel(labels=OWN)
    logits = found.predict(found.encode(examples(30, labels=3)))
    found.confidence = lambda embedding: embedding.sum(-1).sigmoid()
    found.learned = examples(30, labels=3)
    found.model.classifier.bias.data.sub_(found.model.classifier.bias.new_tensor(np.median(logits, axis=0)))
    return found


@pytest.mark.parametrize("name", NAMES)
def test_merged_labels_are_judged_like_a_model_that_has_the_merged_ones(
    name: str, trained: TinyModel, judged: Any
) -> None:
    needs_model = analyses.find(name).needs_model
    given, logits, gold = judged(trained, needs_model)
    gold = [TO_MERGED[label] for label in gold]
    two = merged(logits, maximum if needs_model else logsumexp)
    # Two weak labels never outvote a strong one; that is the kind's promise, not this test's.
    kept = [i for i in range(len(given)) if (two[i].argmax() == 0) == (logits[i].argmax() == 2)]
    assert len(kept) > 15
    mapped = a_set(given, logits, gold, OWN, MERGED, TO_MERGED).take(kept)
    own = a_set(given, two, gold, MERGED, MERGED).take(kept)
    other = Merging(labels=OWN)
    other.model = other.pretrained = trained.model
    other.confidence, other.learned = trained.confidence, trained.learned
    assert 0 < (own.predictions == own.gold).mean() < 1
    same(run(name, trained, mapped, OWN), run(name, other, own, MERGED))
