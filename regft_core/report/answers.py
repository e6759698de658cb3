"""Answers of the method to take, and of the reference beside it: where they are wrong, and how sure they are of it.

Every row of a set is counted once, with the answer of ``OutOfFold.once``: out of fold, or of the first seed.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from regft_core import metrics
from regft_core.data.examples import Example, read_jsonl
from regft_core.kinds import find
from regft_core.report.model import Block
from regft_core.serve.out_of_fold import Answers, OutOfFold
from regft_core.settings.grid import Cell

Array = npt.NDArray[Any]
#: Mistakes and groups that are listed, and characters of a text.
LISTED, CHARACTERS = 8, 300
#: Shares of the rows, the most confident first, whose score is listed.
SHARES = (1.0, 0.9, 0.75, 0.5, 0.25)
#: Beyond this many labels the page lists the most frequent confusions instead of the matrix.
MOST_LABELS = 12


@dataclass(frozen=True)
class ClassScore:
    """Rows of a label, and how well they are recognised; 0 where it was never predicted or never occurs."""

    name: str
    rows: int
    precision: float
    recall: float
    f1: float


@dataclass(frozen=True)
class Kept:
    """The primary score of the most confident rows: their share, the lowest confidence among them, the score."""

    share: float
    confidence: float
    score: float


@dataclass(frozen=True)
class Mistake:
    """A wrong answer; ``size``: its confidence, or of a value its distance. ``wrong`` of ``seeds`` runs were wrong."""

    gold: str | float
    predicted: str | float
    size: float
    wrong: int
    seeds: int
    text: str


@dataclass(frozen=True)
class Group:
    """Rows of one group; ``score``: share of right answers, or of values the mean distance."""

    name: str
    rows: int
    score: float


@dataclass(frozen=True)
class SetAnswers:
    """Answers to one set."""

    rows: int
    #: How many runs they are from.
    models: int
    score: float
    #: [L][L] rows by gold label and predicted label; None where a row has not exactly one label.
    confusion: tuple[tuple[int, ...], ...] | None
    classes: tuple[ClassScore, ...]
    kept: tuple[Kept, ...]
    #: Mean probability of the answers minus the share of right ones; of values the mean error.
    bias: float
    groups: tuple[Group, ...]
    mistakes: tuple[Mistake, ...]
    #: How many answers are wrong, and those of an ordinal task that are one step off.
    wrong: int
    one_off: int
    #: [n] probability of each answer (of several labels of each label), and whether it is right; for figures.
    probability: Array
    right: Array
    #: The curve of ``kept`` as (share, score).
    curve: tuple[tuple[float, float], ...]
    #: [n] labels and answers of values.
    gold: Array
    predicted: Array

    @property
    def confused(self) -> list[tuple[int, int, int]]:
        """(gold label, predicted label, rows) of the most frequent confusions."""
        counts = np.array(self.confusion)
        np.fill_diagonal(counts, 0)
        order = np.argsort(-counts, axis=None, kind="stable")[:MOST_LABELS]
        return [(int(i), int(j), int(counts[i, j])) for i, j in zip(*np.unravel_index(order, counts.shape))]

    def plain(self) -> dict[str, Any]:
        """The numbers for ``results.json``, without rows and their texts."""
        names = ("rows", "models", "score", "bias", "wrong")
        return {name: getattr(self, name) for name in names} | {
            "confusion": None if self.confusion is None else [list(counts) for counts in self.confusion],
            "classes": {one.name: {k: v for k, v in asdict(one).items() if k != "name"} for one in self.classes},
            "kept": [asdict(one) for one in self.kept],
        }


def answers_of(block: Block, root: Path, reference: str, seeds: Sequence[int]) -> dict[str, dict[str, SetAnswers]]:
    """Method -> set -> its answers, of the method to take first; empty where no method can be taken."""
    if block.decision is None or block.decision.pick is None:
        return {}
    finished = [row.method for row in block.rows if row.n_ok]
    methods = dict.fromkeys([block.decision.pick.method, *([reference] if reference in finished else [])])
    folder = root / "work" / "datasets" / block.task
    files = {name: folder / "ood" / f"{name}.jsonl" for name in block.sets}
    files["dev"] = folder / ("train.jsonl" if block.described.folded else "dev.jsonl")
    examples = {name: {row.idx: row for row in read_jsonl(file)} for name, file in files.items()}
    size: Any = block.size
    judged = {method: OutOfFold(root, Cell(method, block.task, size), seeds) for method in methods}
    return {
        method: {name: _of_set(block, name, runs, seeds[0], examples[name]) for name in block.sets}
        for method, runs in judged.items()
    }


def _of_set(block: Block, name: str, runs: OutOfFold, seed: int, examples: Mapping[str, Example]) -> SetAnswers:
    answers, kind = runs.once(seed, name), find(block.described.kind)
    labels = block.described.sets[name].labels or block.described.labels or []
    metric, positive = metrics.find(block.primary), block.positive[name]
    gold, predicted, n = answers.gold, answers.predicted, len(answers.ids)
    confusion: tuple[tuple[int, ...], ...] | None = None
    classes: tuple[ClassScore, ...] = ()
    kept: tuple[Kept, ...] = ()
    curve: tuple[tuple[float, float], ...] = ()
    probability, right, error = np.empty(0), answers.right, np.abs(gold.astype(float) - predicted.astype(float))
    doubt: Array = -error
    if kind.has_labels:
        has, claimed = kind.indicators(gold, len(labels)), kind.indicators(predicted, len(labels))
        if kind.one_label:
            confusion = tuple(tuple(int(n) for n in row) for row in has.T.astype(int) @ claimed.astype(int))
            probability = answers.scores[np.arange(n), predicted]
            doubt = 1 - probability
        else:
            decided = np.where(claimed, answers.scores, 1 - answers.scores)
            probability, right, doubt = decided.ravel(), (has == claimed).ravel(), 1 - decided.prod(axis=1)
        classes = tuple(_class(*of) for of in zip(labels, has.T, claimed.T))
        order = np.argsort(doubt, kind="stable")

        def of_surest(share: float) -> Kept:
            chosen = order[: max(1, round(share * n))]
            score = float(metric.score(gold[chosen], predicted[chosen], positive))
            return Kept(share, float(1 - doubt[chosen[-1]]), score)

        kept = tuple(map(of_surest, SHARES))
        curve = tuple((s, of_surest(s).score) for s in np.linspace(0.1, 1, 46).round(2).tolist())
    return SetAnswers(
        n, answers.models, float(metric.score(gold, predicted, positive)), confusion, classes, kept,
        bias=float(np.mean(probability) - np.mean(right)) if kind.has_labels else float(np.mean(predicted - gold)),
        groups=_groups(answers, error if not kind.has_labels else answers.right),
        mistakes=_mistakes(answers, doubt, labels, kind, runs, name, examples),
        wrong=int((~answers.right).sum()), one_off=int((error == 1).sum()) if kind.ordered else 0,
        probability=probability, right=right, curve=curve, gold=gold, predicted=predicted,
    )  # fmt: skip


def _class(name: str, has: Array, claimed: Array) -> ClassScore:
    hits, rows, claims = int((has & claimed).sum()), int(has.sum()), int(claimed.sum())
    return ClassScore(name, rows, hits / max(claims, 1), hits / max(rows, 1), 2 * hits / max(rows + claims, 1))


def _groups(answers: Answers, values: Array) -> tuple[Group, ...]:
    """The groups with the lowest share of right answers, or of values (no booleans) with the largest errors."""
    if answers.groups is None:
        return ()
    groups = [
        Group(str(name), int(own.sum()), float(values[own].mean()))
        for name in np.unique(answers.groups)
        for own in [answers.groups == name]
    ]
    sign = 1 if values.dtype == bool else -1
    return tuple(sorted(groups, key=lambda group: (sign * group.score, -group.rows))[:LISTED])


def _mistakes(
    answers: Answers, doubt: Array, labels: Sequence[str], kind: Any, runs: OutOfFold, name: str,
    examples: Mapping[str, Example],
) -> tuple[Mistake, ...]:  # fmt: skip
    """The wrong answers that were surest, or the values farthest off; equal ones in the order of the rows."""
    wrong = np.flatnonzero(~answers.right)
    mistakes = []
    for i in wrong[np.argsort(doubt[wrong], kind="stable")][:LISTED]:
        idx, example = answers.ids[i], examples[answers.ids[i]]
        every = [
            bool(found.gold[at] == found.predicted[at])
            for found in runs.answers(name).values()
            for at in [i if found.ids == answers.ids else found.ids.index(idx) if idx in found.ids else None]
            if at is not None
        ]
        size = float(1 - doubt[i]) if kind.has_labels else float(-doubt[i])
        text = " | ".join(filter(None, (example.text, example.text_pair)))
        text = text if len(text) <= CHARACTERS else text[: CHARACTERS - 1] + "…"
        gold, predicted = (kind.shown(values[i], labels) for values in (answers.gold, answers.predicted))
        mistakes.append(Mistake(gold, predicted, size, every.count(False), len(every), text))
    return tuple(mistakes)
