"""A finished run as an evaluation sees it: with a tiny random encoder, or with logits that are written down."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from copy import deepcopy
from types import MappingProxyType
from typing import Any

import numpy as np
from torch import Tensor

from regft_core.data.batches import Batch, collate, evaluation_batches, padding_of
from regft_core.data.encode import Encoded, encode
from regft_core.data.examples import Example
from regft_core.evaluate import analyses
from regft_core.evaluate.analysis_result import Findings
from regft_core.evaluate.evaluated import EvaluatedRun, EvaluatedSet, OtherRows
from regft_core.evaluate.logits import predict
from regft_core.schema import DropoutConfig
from tests.methods.harness import examples, loaded, source_of, tokenizer_of

LABELS = ("label_0", "label_1")
BATCH = 160  # tokens: five of its longest texts


class TinyModel:
    """Stands for ``run.finished_model.FinishedModel``; ``confidence`` and ``views`` are what a method would say."""

    def __init__(
        self,
        architecture: str = "bert",
        *,
        kind: str = "classification",
        separately: bool = False,
        seed: int = 0,
        labels: tuple[str, ...] = LABELS,
    ) -> None:
        self.kind, self.per_example = kind, 2 if separately else 1
        self.tokenizer: Any = tokenizer_of(source_of(architecture))
        self.pooling = "mean" if separately else "head"
        names = labels if kind == "classification" else None
        shape = {"kind": kind, "labels": names, "pooling": self.pooling, "rows_per_example": self.per_example}
        drawn = {"dropout": DropoutConfig(), "head_seed": seed}
        self.model: Any = deepcopy(loaded(source_of(architecture), **shape, **drawn)).eval()
        self.pretrained: Any = deepcopy(self.model)
        self.kept: dict[str, Tensor] = {}
        self.learned: Sequence[Example] = ()
        self.confidence: Any = lambda embedding: None
        self.views: Any = lambda embedding, mask, segment: None

    def encode(self, given: Sequence[Example]) -> Encoded:
        return encode(given, self.tokenizer, 32, rows_per_example=self.per_example)

    def batches(self, encoded: Encoded) -> Iterator[Batch]:
        for indices in evaluation_batches(encoded, BATCH):
            yield collate(encoded, indices, padding_of(self.tokenizer), self.kind)

    def predict(self, encoded: Encoded) -> Any:
        return predict(self.model, encoded, padding=padding_of(self.tokenizer), kind=self.kind)

    def training_rows(self) -> Sequence[Example]:
        return self.learned


def other_task(kind: str = "classification", labels: Any = ("no", "yes"), primary: str = "accuracy") -> dict[str, Any]:
    """What ``task.json`` has of another task."""
    return {"task": "t", "kind": kind, "labels": labels, "primary": primary}


def finished(
    trained: TinyModel, count: int = 12, *, pair: bool = False, gold: Sequence[float] | None = None
) -> EvaluatedSet:
    """The development set with what the model really says about it."""
    given = examples(count, pair=pair or trained.per_example == 2, kind=trained.kind)
    logits = trained.predict(trained.encode(given))
    labels = LABELS if trained.kind == "classification" else ()
    right = np.asarray(gold if gold is not None else [example.label for example in given])
    return EvaluatedSet("dev", trained.kind, logits, right, given, labels, np.arange(len(labels)))


def judged(probabilities: Sequence[Sequence[float]], gold: Sequence[int]) -> EvaluatedSet:
    """The development set of a run without a model; its logits are the logarithms of ``probabilities``, up to 3."""
    logits = (np.log(np.asarray(probabilities)) + 3.0).astype(np.float64)
    given = [Example(f"r{i}", f"text {i}", None, label) for i, label in enumerate(gold)]
    return EvaluatedSet("dev", "classification", logits, np.asarray(gold), given, LABELS, np.arange(len(LABELS)))


def run_of(
    name: str,
    trained: TinyModel | None,
    judged: EvaluatedSet | None = None,
    *,
    seed: int = 0,
    others: Mapping[str, OtherRows] | None = None,
    models: Mapping[str, TinyModel] | None = None,
    task: Mapping[str, Any] = MappingProxyType({}),
    **options: Any,
) -> Any:
    """A run as an evaluation sees it, with one set or none; ``task`` is what its ``task.json`` has that is unusual."""
    (kind,) = {one.kind for one in (trained, judged) if one is not None}
    usual = {"kind": kind, "labels": list(LABELS) if kind == "classification" else None, "primary": "accuracy"}
    chosen = analyses.find(name).Config.model_validate(options)
    asked: Any = [given.__getitem__ if given else None for given in (others, models)]
    sets, described = {} if judged is None else {judged.name: judged}, {**usual, "positive_label": None, "sets": {}}
    return EvaluatedRun({**described, **task}, seed, chosen, sets, trained, *asked)


def evaluated(name: str, trained: TinyModel | None, judged: EvaluatedSet, **asked: Any) -> Findings:
    """Run an evaluation on one set."""
    findings = analyses.find(name).run(run_of(name, trained, judged, **asked))
    findings.as_json({judged.name})  # is what an evaluation may find
    return findings
