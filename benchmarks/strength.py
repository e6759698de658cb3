"""How the L2 strength of a solved head is chosen: rules beside scikit-learn's C = 1 on sentence embeddings.

    python benchmarks/strength.py --data DIR --draws 12

Vectors are those of ``minilm``, of rows drawn from each set; no encoder is trained. Every rule reads the same rows and
may ask for the log loss of left-out rows at any strength; accuracy is that on the test rows of a fit to all training
rows. DIR is that of ``real_tasks.py``.
"""

from __future__ import annotations

import argparse
import gzip
import json
import warnings
from collections.abc import Callable
from functools import cache
from pathlib import Path
from random import Random
from typing import Any

import numpy as np
import numpy.typing as npt
import torch
from sklearn.linear_model import LogisticRegression

from regft_core.models.pooling import pair_features, pool
from regft_core.training.linear_solution import STRENGTHS, scaled_apart
from regft_core.training.logistic import Penalty, classify, folds_of, left_out_loss, smallest_loss

ROOT = Path(__file__).resolve().parents[1]
#: Set -> its folder in DIR, the files of training and test rows.
SETS = {
    "sst2": ("sst2", "train", "dev"),
    "cola": ("cola", "train", "dev"),
    "sick": ("sick", "train", "test"),
    "mrpc": ("mrpc", "train", "test"),
    "snli": ("snli", "train", "test"),
    "qnli": ("qnli", "train", "dev"),
    "qqp": ("qqp", "train", "dev"),
    "rte": ("rte", "train", "dev"),
}
Array = npt.NDArray[np.float64]
Loss = Callable[[float], float]
RULE_OF_SKLEARN = "C = 1, vectors of length 1"
#: Rule -> the strength that it takes.
RULES: dict[str, Callable[[Loss], float]] = {
    "decades": lambda loss: min(STRENGTHS, key=loss),
    "half decades about the best": lambda loss: smallest_loss(STRENGTHS, loss),
    "all half decades": lambda loss: min(np.geomspace(STRENGTHS[0], STRENGTHS[-1], 15), key=loss),
    **{f"fixed {fixed:.2g} per row": lambda loss, fixed=fixed: fixed for fixed in (10**-0.5, 1.0, 10**0.5)},
}


def encoder_folder() -> str:
    """The packaged encoder with its pipeline files."""
    from regft_core.models.source import resolve_model
    from regft_core.schema.encoder import EncoderConfig

    return str(resolve_model(EncoderConfig(name="minilm"), ROOT).path)


def read(path: Path) -> list[dict[str, str]]:
    """Rows with ``text``, ``label`` and, of pairs, ``other``."""
    with gzip.open(path, "rt", encoding="utf-8", newline="") as file:
        raw = [json.loads(line) for line in file.read().split("\n") if line]
    first = "sentence" if "sentence" in raw[0] else "sentence1"
    other = {"other": "sentence2"} if "sentence2" in raw[0] else {}
    keys = {"text": first, **other, "label": "label"}
    return [{name: str(row[key]) for name, key in keys.items()} for row in raw]


@torch.inference_mode()
def embedded(texts: list[str]) -> Array:
    """Mean token vectors [n, H] of the encoder."""
    from transformers import AutoModel, AutoTokenizer

    folder = encoder_folder()
    tokenizer, model = AutoTokenizer.from_pretrained(folder), AutoModel.from_pretrained(folder).eval()
    order = sorted(range(len(texts)), key=lambda i: len(texts[i]))
    found = np.zeros((len(texts), model.config.hidden_size))
    for start in range(0, len(order), 64):
        rows = order[start : start + 64]
        batch = tokenizer([texts[i] for i in rows], padding=True, truncation=True, max_length=128, return_tensors="pt")
        found[rows] = pool(model(**batch)[0], batch["attention_mask"], "mean", "first").numpy()
    return found


def features(parts: list[Array]) -> Array:
    """What the probe's linear reads [n, d]: the vectors of single texts, or the features of pairs."""
    if len(parts) == 1:
        return parts[0]
    found: Array = pair_features(torch.from_numpy(np.stack(parts, 1).reshape(-1, parts[0].shape[1]))).numpy()
    return found


def of_length_one(parts: list[Array]) -> Array:
    """What a user of a sentence encoder would take [n, d]: vectors of length 1; of pairs u, v, |u - v|, u * v."""
    unit = [part / np.linalg.norm(part, axis=1, keepdims=True) for part in parts]
    return np.concatenate([*unit, abs(unit[0] - unit[1]), unit[0] * unit[1]], 1) if unit[1:] else unit[0]


def vectors(data: Path, name: str) -> tuple[list[Array], list[Array], Any, Any]:
    """(training vectors of each text [2500, H], test vectors [1200, H], labels, gold) of a set; fewer where it has."""
    folder, *splits = SETS[name]
    both = [read(data / folder / f"{split}.jsonl.gz") for split in splits]
    for rows, seed, most in zip(both, (1, 2), (2500, 1200), strict=True):
        Random(seed).shuffle(rows)
        del rows[most:]
    train, test = ([embedded([row[k] for row in rows]) for k in ("text", "other") if k in rows[0]] for rows in both)
    labels, gold = (np.array([row["label"] for row in rows]) for rows in both)
    names = np.unique(labels)
    return train, test, np.searchsorted(names, labels), np.searchsorted(names, gold)


def scores(own: Array, labels: Any, test: Array, gold: Any, seed: int, parts: int) -> dict[str, float]:
    """Rule -> accuracy on the features ``test`` [m, d] after training on ``own`` [n, d]."""
    scaled, centre, scale = scaled_apart(own, parts)
    # As in ``classify_linearly``, in the span of the rows, which is the same and faster.
    span = np.linalg.qr(scaled.T)[0] if len(own) < own.shape[1] else np.eye(own.shape[1])
    rows, asked = scaled @ span, (test - centre) / scale @ span
    splits = folds_of(len(labels), labels.tolist(), None, 5, seed)
    assert splits is not None
    loss = cache(left_out_loss(rows, labels, splits, Penalty((), 1.0, 1e-6, per_row=True), None))

    @cache
    def accuracy(strength: float) -> float:
        penalty = Penalty((), usual=strength, tolerance=1e-6, per_row=True)
        found = classify(rows, labels, int(labels.max()) + 1, 0, what="strength", penalty=penalty)
        return float(((asked @ found.weight.T + found.bias).argmax(1) == gold).mean())

    return {name: accuracy(float(rule(loss))) for name, rule in RULES.items()}


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
        train, test, labels, gold = vectors(options.data, name)
        own, tests, rival, rival_tests = features(train), features(test), of_length_one(train), of_length_one(test)
        parts = 1 if options.one_scale else own.shape[1] // train[0].shape[1]
        for count in options.rows:
            found[count][name] = []
            for draw in range(options.draws):
                rows = drawn(labels, count, draw)
                plain = LogisticRegression(tol=1e-6, max_iter=3000).fit(rival[rows], labels[rows])
                one = {RULE_OF_SKLEARN: float((plain.predict(rival_tests) == gold).mean())}
                found[count][name].append(one | scores(own[rows], labels[rows], tests, gold, draw, parts))
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
