"""How the L2 strength of a solved head is chosen: rules beside scikit-learn's C = 1 on sentence embeddings.

    python benchmarks/strength.py --data DIR --draws 12

Vectors are those of ``minilm``, of rows drawn from each set; no encoder is trained. Every rule reads the same rows.
A rule is told the log loss of left-out rows at each half decade of strength; accuracy is that on the test rows of a
fit to all training rows. DIR is that of ``real_tasks.py``.
"""

from __future__ import annotations

import argparse
import warnings
from collections.abc import Callable
from pathlib import Path
from random import Random
from typing import Any

import numpy as np
import numpy.typing as npt
from rivals import SETS, encoder_folder, read
from sklearn.linear_model import LogisticRegression

from regft_core.models.pooling import PAIR_PARTS
from regft_core.training.folds import folds_of
from regft_core.training.linear_solution import scaled_apart

Array = npt.NDArray[np.float64]
STRENGTHS = np.logspace(-5, 2, 15)
RULE_OF_SKLEARN = "C = 1, vectors of length 1"


def decades(losses: Array) -> int:
    """The best decade; the rule until 0.9."""
    return 2 * int(losses[::2].argmin())


def near(losses: Array) -> int:
    """The best decade, then the half decades about it (``regft_core.training.logistic.smallest_loss``)."""
    best = decades(losses)
    return min(range(max(0, best - 1), min(len(losses), best + 2)), key=lambda i: losses[i])


#: Rule -> index of STRENGTHS, by the mean log loss of left-out rows at each.
RULES: dict[str, Callable[[Array], int]] = {
    "decades": decades,
    "half decades about the best": near,
    "all half decades": lambda losses: int(losses.argmin()),
    **{f"{strength:.2g} per row": lambda losses, i=i: i for i, strength in enumerate(STRENGTHS) if 6 <= i <= 11},
}


def embedded(texts: list[str]) -> Array:
    """Mean token vectors [n, H] of the encoder."""
    import torch
    from transformers import AutoModel, AutoTokenizer

    folder = encoder_folder()
    tokenizer, model = AutoTokenizer.from_pretrained(folder), AutoModel.from_pretrained(folder).eval()
    order = sorted(range(len(texts)), key=lambda i: len(texts[i]))
    found = np.zeros((len(texts), model.config.hidden_size))
    for start in range(0, len(order), 64):
        rows = order[start : start + 64]
        batch = tokenizer([texts[i] for i in rows], padding=True, truncation=True, max_length=128, return_tensors="pt")
        with torch.inference_mode():
            mask = batch["attention_mask"].unsqueeze(-1)
            found[rows] = ((model(**batch)[0] * mask).sum(1) / mask.sum(1)).numpy()
    return found


def features(parts: list[Array], size: float) -> Array:
    """[n, d]: the vectors of one text; of pairs u, v, |u - v|, u * v, each divided by its length and times ``size``."""
    if len(parts) == 1:
        return parts[0]
    first, second = (size * part / length(part) for part in parts)
    return np.concatenate([first, second, abs(first - second), first * second], 1)


def pair_features(parts: list[Array]) -> Array:
    """As ``regft_core.models.pooling.pair_features``; of single texts, their vectors."""
    return features(parts, parts[0].shape[1] ** 0.5)


def texts(data: Path, name: str) -> tuple[list[Array], list[Array], Any, Any]:
    """(training vectors of each text [2500, H], test vectors [1200, H], labels, gold) of a set; fewer where it has."""
    folder, *splits = SETS[name]
    both = [read(data / folder / f"{split}.jsonl.gz") for split in splits]
    for rows, seed, most in zip(both, (1, 2), (2500, 1200), strict=True):
        Random(seed).shuffle(rows)
        del rows[most:]
    train, test = ([embedded([row[k] for row in rows]) for k in ("text", "other") if k in rows[0]] for rows in both)
    labels, gold = (np.array([row["label"] for row in rows]) for rows in both)
    return train, test, labels, gold


def length(vectors: Array) -> Array:
    return np.linalg.norm(vectors, axis=1, keepdims=True)


def fitted(rows: Array, labels: Any, inverse: float) -> LogisticRegression:
    return LogisticRegression(C=inverse, tol=1e-6, max_iter=3000).fit(rows, labels)


def scores(
    own: Array, as_rival: Array, labels: Any, tests: tuple[Array, Array, Any], seed: int, parts: int
) -> dict[str, float]:
    """Rule -> accuracy on the test rows (features of ours, of the rival, labels) after training on these rows."""
    own_test, rival_test, gold = tests
    scaled, centre, scale = scaled_apart(own, parts)
    # The fit lies in the span of the rows: there, it is the same and faster.
    span = np.linalg.qr(scaled.T)[0] if len(own) < own.shape[1] else np.eye(own.shape[1])
    rows, test = scaled @ span, ((own_test - centre) / scale) @ span
    splits = folds_of(len(labels), labels.tolist(), None, 5, seed)
    assert splits is not None
    losses, accuracies = np.zeros(len(STRENGTHS)), np.zeros(len(STRENGTHS))
    for i, strength in enumerate(STRENGTHS):
        for train, left_out in splits:
            model = fitted(rows[train], labels[train], 1 / (strength * len(train)))
            odds = model.predict_log_proba(rows[left_out])
            losses[i] -= odds[np.arange(len(left_out)), np.searchsorted(model.classes_, labels[left_out])].sum()
        accuracies[i] = (fitted(rows, labels, 1 / (strength * len(labels))).predict(test) == gold).mean()
    plain = float((fitted(as_rival, labels, 1.0).predict(rival_test) == gold).mean())
    return {RULE_OF_SKLEARN: plain, **{name: float(accuracies[rule(losses)]) for name, rule in RULES.items()}}


def drawn(labels: Any, count: int, seed: int) -> Any:
    """Indices of about ``count`` rows, the classes as in all of them."""
    generator = np.random.default_rng([seed, count])
    own = [np.flatnonzero(labels == label) for label in np.unique(labels)]
    kept = [generator.permutation(rows)[: max(2, round(count * len(rows) / len(labels)))] for rows in own]
    return generator.permutation(np.concatenate(kept))


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--data", type=Path, required=True, help="folder of the local sets")
    parser.add_argument("--sets", nargs="+", choices=tuple(SETS), default=list(SETS))
    parser.add_argument("--rows", nargs="+", type=int, default=[50, 200, 500])
    parser.add_argument("--draws", type=int, default=12)
    parser.add_argument("--one-scale", action="store_true", help="one number for all features of a pair")
    options = parser.parse_args()
    warnings.simplefilter("ignore")
    found: dict[int, dict[str, list[dict[str, float]]]] = {count: {} for count in options.rows}
    for name in options.sets:
        train, test, labels, gold = texts(options.data, name)
        own, own_test = pair_features(train), pair_features(test)
        rival, rival_test = (features([one / length(one) for one in parts], 1.0) for parts in (train, test))
        for count in options.rows:
            found[count][name] = []
            for draw in range(options.draws):
                rows = drawn(labels, count, draw)
                own_tests = own_test, rival_test, gold
                parts = PAIR_PARTS if len(train) == 2 and not options.one_scale else 1
                found[count][name].append(scores(own[rows], rival[rows], labels[rows], own_tests, draw, parts))
    for count, of_sets in found.items():
        print(f"\n| {count} rows | {' | '.join(of_sets)} | mean | minus C = 1 | standard error |")
        print("|---|" + "---|" * (len(of_sets) + 3))
        for rule in (RULE_OF_SKLEARN, *RULES):
            means = [100 * np.mean([one[rule] for one in draws]) for draws in of_sets.values()]
            less = [100 * np.array([one[rule] - one[RULE_OF_SKLEARN] for one in draws]) for draws in of_sets.values()]
            error = np.sqrt(sum(one.var(ddof=1) / len(one) for one in less)) / len(less)
            shown = " | ".join(f"{mean:.1f}" for mean in means)
            print(f"| {rule} | {shown} | {np.mean(means):.2f} | {np.mean(less):+.2f} | {error:.2f} |")


if __name__ == "__main__":
    main()
