"""Answers of the method to take, one for each row (``OutOfFold.once``): where they are wrong, and how sure of it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import pandas as pd

from regft_core import metrics
from regft_core.data.examples import Example, read_jsonl
from regft_core.evaluate.evaluated import positive_of
from regft_core.kinds import find
from regft_core.report.values import Block
from regft_core.serve.out_of_fold import Answers, OutOfFold
from regft_core.settings.project import Cell

Array = npt.NDArray[Any]
LISTED, CHARACTERS = 8, 300
#: Shares of the rows, the most confident first, whose score is listed.
SHARES = (1.0, 0.9, 0.75, 0.5, 0.25)
#: Beyond this many labels the page lists the most frequent confusions instead of the matrix.
MOST_LABELS = 12


@dataclass(frozen=True)
class SetAnswers:
    """Answers to one set, of ``models`` runs.

    Attributes:
        confusion: [L][L] rows by gold label and predicted label; None where a row has not exactly one label.
        classes: label -> ``rows``, ``precision``, ``recall``, ``f1``; 0 where it was never predicted or never occurs.
        kept: the primary ``score`` of a ``share`` of the rows, the most confident, and the lowest ``confidence`` there.
        bias: mean probability of the answers minus the share of right ones; of values the mean error.
        groups: the worst by ``score``, the share of right answers or the mean distance of values; with their ``rows``.
        mistakes: the most confident ones (``size``), or the largest distances.
        probability, right: [n] of each answer (of several labels of each label); ``curve``: (share, score) as ``kept``.
        gold, predicted: [n] labels and answers.
    """

    rows: int
    models: int
    score: float
    confusion: list[list[int]] | None
    classes: dict[str, dict[str, Any]]
    kept: list[dict[str, float]]
    bias: float
    groups: list[dict[str, Any]]
    mistakes: list[dict[str, Any]]
    wrong: int
    probability: Array
    right: Array
    curve: list[tuple[float, float]]
    gold: Array
    predicted: Array

    @property
    def confused(self) -> list[tuple[int, int, int]]:
        counts = np.array(self.confusion)
        np.fill_diagonal(counts, 0)
        order = np.argsort(-counts, axis=None, kind="stable")[:MOST_LABELS]
        return [(int(i), int(j), int(counts[i, j])) for i, j in zip(*np.unravel_index(order, counts.shape))]

    def plain(self) -> dict[str, Any]:
        names = ("rows", "models", "score", "bias", "wrong", "confusion", "classes", "kept")
        return {name: getattr(self, name) for name in names}


def answers_of(block: Block, root: Path, seeds: Sequence[int]) -> dict[str, SetAnswers]:
    """Set -> the answers of the method to take; empty where no method can be taken."""
    if not block.taken:
        return {}
    folder = root / "work" / "datasets" / block.task
    files = {name: folder / "ood" / f"{name}.jsonl" for name in block.sets}
    files["dev"] = folder / ("train.jsonl" if block.described.folded else "dev.jsonl")
    size: Any = block.size
    runs = OutOfFold(root, Cell(block.taken, block.task, size), seeds)
    return {
        name: _of_set(block, name, runs, seeds[0], {row.idx: row for row in read_jsonl(file)})
        for name, file in files.items()
    }


def _of_set(block: Block, name: str, runs: OutOfFold, seed: int, examples: Mapping[str, Example]) -> SetAnswers:
    answers, kind = runs.once(seed, name), find(block.described.kind)
    labels = block.described.sets[name].labels or block.described.labels or []
    metric, positive = metrics.find(block.primary), positive_of(block.described, name)
    gold, predicted, n = answers.gold, answers.predicted, len(answers.ids)
    error = np.abs(gold.astype(float) - predicted.astype(float))
    probability, right, doubt, confusion = np.empty(0), answers.right, -error, None
    classes, kept, curve = dict[str, dict[str, Any]](), list[dict[str, float]](), list[tuple[float, float]]()
    if kind.has_labels:
        has, claimed = kind.indicators(gold, len(labels)), kind.indicators(predicted, len(labels))
        if kind.one_label:
            confusion = (has.T.astype(int) @ claimed.astype(int)).tolist()
            probability = answers.scores[np.arange(n), predicted]
            doubt = 1 - probability
        else:
            decided = np.where(claimed, answers.scores, 1 - answers.scores)
            probability, right, doubt = decided.ravel(), (has == claimed).ravel(), 1 - decided.prod(axis=1)
        counts = ([int(count) for count in of.sum(axis=0)] for of in (has & claimed, has, claimed))
        for label, hits, rows, claims in zip(labels, *counts):
            measures = {"precision": hits / max(claims, 1), "recall": hits / max(rows, 1)}
            classes[label] = {"rows": rows, **measures, "f1": 2 * hits / max(rows + claims, 1)}
        order = np.argsort(doubt, kind="stable")

        def of_surest(share: float) -> dict[str, float]:
            chosen = order[: max(1, round(share * n))]
            score = float(metric.score(gold[chosen], predicted[chosen], positive))
            return {"share": share, "confidence": float(1 - doubt[chosen[-1]]), "score": score}

        kept = list(map(of_surest, SHARES))
        curve = [(share, of_surest(share)["score"]) for share in np.linspace(0.1, 1, 46).round(2).tolist()]
    return SetAnswers(
        n, answers.models, float(metric.score(gold, predicted, positive)), confusion, classes, kept,
        bias=float(np.mean(probability) - np.mean(right)) if kind.has_labels else float(np.mean(predicted - gold)),
        groups=_groups(answers, answers.right if kind.has_labels else error),
        mistakes=_mistakes(answers, doubt, labels, kind, examples),
        wrong=int((~answers.right).sum()), probability=probability, right=right, curve=curve,
        gold=gold, predicted=predicted,
    )  # fmt: skip


def _groups(answers: Answers, values: Array) -> list[dict[str, Any]]:
    """The groups with the lowest share of right answers, or of values (no booleans) with the largest errors."""
    if answers.groups is None:
        return []
    by_group = pd.Series(values.astype(float)).groupby(answers.groups.astype(str))
    groups = pd.DataFrame({"rows": by_group.size(), "score": by_group.mean()}).rename_axis("name").reset_index()
    worst = groups.sort_values(["score", "rows"], ascending=[values.dtype == bool, False], kind="stable")
    return list(worst[:LISTED].to_dict("records"))


def _mistakes(
    answers: Answers, doubt: Array, labels: Sequence[str], kind: Any, examples: Mapping[str, Example]
) -> list[dict[str, Any]]:
    """The wrong answers that were surest, or the values farthest off; equal ones in the order of the rows."""
    wrong, mistakes = np.flatnonzero(~answers.right), []
    for i in wrong[np.argsort(doubt[wrong], kind="stable")][:LISTED]:
        example = examples[answers.ids[i]]
        size = float(1 - doubt[i]) if kind.has_labels else float(-doubt[i])
        text = " | ".join(filter(None, (example.text, example.text_pair)))
        text = text if len(text) <= CHARACTERS else text[: CHARACTERS - 1] + "…"
        gold, predicted = (kind.shown(values[i], labels) for values in (answers.gold, answers.predicted))
        mistakes.append({"gold": gold, "predicted": predicted, "size": size, "text": text})
    return mistakes
