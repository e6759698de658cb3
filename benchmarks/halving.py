"""Does successive halving choose better settings than trying all of them, or as good ones for less?

    OTHER/bin/python benchmarks/halving.py --data DIR --encoder FOLDER

Real rows, small trainings: a hidden layer on frozen sentence embeddings, with nine settings (rate, epochs) to choose
from by three folds of 120 training rows. A rule reads scores of folds and pays for each training that it reads; what it
has chosen is trained on all 120 rows and judged by 500 test rows. The rules see the same scores.
"""

from __future__ import annotations

import argparse
from collections.abc import Callable, Sequence
from pathlib import Path
from random import Random
from statistics import fmean, stdev
from typing import Any

import numpy as np
import torch
from rivals import SETS, Rows, drawn
from sentence_transformers import SentenceTransformer

FOLDS = 3
#: Rate and epochs, in the order in which ``pipelines/own_data.yaml`` would add them: the middle first.
SETTINGS = [(r, e) for e in (20, 10, 40) for r in (1e-3, 3e-3, 3e-4)]
NOW = "all of 3 on 3 folds (now)"
Score = Callable[[int, int], float]


def every(count: int, folds: int = FOLDS) -> Callable[[Score], int]:
    """The best mean of so many folds, of the first ``count`` settings."""

    def rule(score: Score) -> int:
        return max(range(count), key=lambda one: fmean(score(one, fold) for fold in range(folds)))

    return rule


def halving(*kept: int) -> Callable[[Score], int]:
    """Of ``kept[0]`` settings, those that go on to each next fold, by the mean of the folds so far."""

    def rule(score: Score) -> int:
        left = list(range(kept[0]))
        for fold, keep in enumerate((*kept[1:], 1)):
            means = {one: fmean(score(one, seen) for seen in range(fold + 1)) for one in left}
            left = sorted(left, key=lambda one: -means[one])[:keep]
        return left[0]

    return rule


RULES = {
    "first of the list": lambda score: 0,
    NOW: every(3),
    "all of 3 on 2 folds": every(3, 2),
    "all of 3 on 1 fold": every(3, 1),
    "halving 3, 2": halving(3, 2),
    "halving 3, 2, 2": halving(3, 2, 2),
    "halving 5, 2, 2": halving(5, 2, 2),
    "halving 9, 4, 2": halving(9, 4, 2),
    "all of 9 on 3 folds": every(9),
}


def trained(x: Any, y: Any, setting: tuple[float, int], classes: int, seed: int) -> Any:
    """A hidden layer of 64, batches of 16, AdamW with a linear decay."""
    torch.manual_seed(seed)
    model = torch.nn.Sequential(torch.nn.Linear(x.shape[1], 64), torch.nn.ReLU(), torch.nn.Linear(64, classes))
    rate, epochs = setting
    steps = epochs * -(-len(x) // 16)
    optimizer = torch.optim.AdamW(model.parameters(), lr=rate, weight_decay=0.01)
    schedule = torch.optim.lr_scheduler.LambdaLR(optimizer, lambda step: 1 - step / steps)
    for _ in range(epochs):
        for batch in torch.randperm(len(x)).split(16):
            torch.nn.functional.cross_entropy(model(x[batch]), y[batch]).backward()
            optimizer.step()
            optimizer.zero_grad()
            schedule.step()
    return model


def accuracy(model: Any, x: Any, y: Any) -> float:
    with torch.inference_mode():
        return float((model(x).argmax(1) == y).float().mean())


def features(encoder: Any, rows: Rows) -> Any:
    parts = [encoder.encode([row[key] for row in rows]) for key in ("text", "other") if key in rows[0]]
    joined = np.concatenate([*parts, abs(parts[0] - parts[1]), parts[0] * parts[1]], 1) if parts[1:] else parts[0]
    return torch.tensor(joined)


def one_draw(x: Any, y: Any, test: tuple[Any, Any], classes: int, seed: int) -> dict[str, tuple[float, int]]:
    """Rule -> test accuracy of what it chose, and the trainings of folds that it read."""
    order = torch.tensor(Random(seed).sample(range(len(x)), len(x)))
    known: dict[tuple[int, int], float] = {}

    def score(paid: set[tuple[int, int]], one: int, fold: int) -> float:
        paid.add((one, fold))
        if (one, fold) not in known:
            held = torch.zeros(len(x), dtype=torch.bool)
            held[order[fold::FOLDS]] = True
            model = trained(x[~held], y[~held], SETTINGS[one], classes, seed)
            known[one, fold] = accuracy(model, x[held], y[held])
        return known[one, fold]

    final: dict[int, float] = {}
    found = {}
    for name, rule in RULES.items():
        paid: set[tuple[int, int]] = set()
        chosen = rule(lambda one, fold, paid=paid: score(paid, one, fold))
        if chosen not in final:
            final[chosen] = accuracy(trained(x, y, SETTINGS[chosen], classes, seed), *test)
        found[name] = final[chosen], len(paid)
    return found


def table(draws: Sequence[dict[str, tuple[float, int]]]) -> str:
    lines = ["| rule | trainings of folds | accuracy | minus now | standard error |", "|---|---|---|---|---|"]
    for name in RULES:
        own = [100 * draw[name][0] for draw in draws]
        gains = [mine - 100 * draw[NOW][0] for mine, draw in zip(own, draws, strict=True)]
        paid = fmean(draw[name][1] for draw in draws)
        lines.append(
            f"| {name} | {paid:.0f} | {fmean(own):.1f} | {fmean(gains):+.2f} | {stdev(gains) / len(gains) ** 0.5:.2f} |"
        )
    return "\n".join(lines)


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--data", type=Path, required=True, help="folder of the local sets")
    parser.add_argument("--encoder", required=True, help="folder of a sentence encoder")
    parser.add_argument("--sets", nargs="+", choices=tuple(SETS), default=["sst2", "sick", "mrpc", "snli", "qnli"])
    parser.add_argument("--rows", type=int, default=120)
    parser.add_argument("--pool", type=int, default=240, help="training rows of which each draw takes some")
    parser.add_argument("--test-rows", type=int, default=500)
    parser.add_argument("--draws", type=int, default=10)
    options = parser.parse_args()
    encoder, draws = SentenceTransformer(options.encoder, device="cpu"), []
    for name in options.sets:
        train, test = drawn(options.data, name, options.pool, 0, options.test_rows)
        names = sorted({row["label"] for row in train})
        (x, y), held = (
            (features(encoder, rows), torch.tensor([names.index(row["label"]) for row in rows]))
            for rows in (train, test)
        )
        for seed in range(options.draws):
            own = torch.tensor(Random(f"{name} {seed}").sample(range(len(x)), options.rows))
            draws.append(one_draw(x[own], y[own], held, len(names), seed))
        print(f"{name}\n{table(draws[-options.draws :])}", flush=True)
    print(f"all\n{table(draws)}")


if __name__ == "__main__":
    main()
