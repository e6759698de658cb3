"""Scores and CPU seconds of training in bf16 beside fp32, paired by seed, on real texts.

    python benchmarks/bf16_training.py --data DIR --sets sst2 sick stsb --rows 300 --evaluated 500 --epochs 10

Plain fine-tuning of the default encoder (mean pooling, batch 16, 1e-4), one thread. A seed draws the training rows, the
head and dropout; both precisions get the same. Seconds are those of the steps, CPU seconds of this process; the two
precisions take turns. Intervals: 95% of the paired difference, Student's t. DIR is that of ``real_tasks.py``.
"""

from __future__ import annotations

import argparse
import dataclasses
import gzip
import json
import random
import statistics
import sys
import time
from pathlib import Path
from typing import Any

import numpy as np
import torch
from scipy import stats

sys.path.insert(0, str(Path(__file__).resolve().parent))
import cost

from regft_core.data.batches import padding_of
from regft_core.data.encode import Encoded, encode
from regft_core.data.examples import Example
from regft_core.evaluate.predict import predict
from regft_core.models.load import load_tokenizer
from regft_core.models.source import resolve_model
from regft_core.runs.training_run import prepare
from regft_core.schema.encoder import EncoderConfig

PRECISIONS = ("fp32", "bf16")


def read(data: Path, name: str, split: str) -> list[Example]:
    with gzip.open(data / name / f"{split}.jsonl.gz", "rt", encoding="utf-8") as lines:
        rows = [json.loads(line) for line in lines]
    pairs = [(row["sentence"], None) if "sentence" in row else (row["sentence1"], row["sentence2"]) for row in rows]
    return [Example(str(i), *pair, row["label"]) for i, (pair, row) in enumerate(zip(pairs, rows, strict=True))]


def score(kind: str, logits: Any, encoded: Encoded) -> float:
    """Accuracy, or Pearson's correlation, times 100."""
    if kind == "regression":
        return 100 * float(stats.pearsonr(logits[:, 0], encoded.labels)[0])
    return 100 * float((logits.argmax(1) == np.array(encoded.labels)).mean())


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data", type=Path, required=True)
    parser.add_argument("--sets", nargs="+", default=["sst2", "sick", "stsb"])
    parser.add_argument("--rows", type=int, default=300)
    parser.add_argument("--evaluated", type=int, default=500)
    parser.add_argument("--epochs", type=int, default=10)
    parser.add_argument("--seeds", type=int, nargs="+", default=list(range(6)))
    options = parser.parse_args()
    torch.set_num_threads(1)
    source = resolve_model(EncoderConfig(name="minilm"), Path())
    tokenizer = load_tokenizer(source)
    pad = padding_of(tokenizer)
    (method,) = (cost.all_methods(cost.ROOT)[name] for name in ("vanilla",))
    print("| set | constant answer | fp32 | bf16 | difference | CPU seconds, bf16 / fp32 |", "|" + "---|" * 6, sep="\n")
    for name in options.sets:
        kind = "regression" if name == "stsb" else "classification"
        pool, judged = read(options.data, name, "train"), read(options.data, name, "dev")[: options.evaluated]
        dev = encode(judged, tokenizer, 128)
        classes = sorted({example.label for example in pool}) if kind == "classification" else []
        constant = 100 * max((dev.labels.count(label) for label in classes), default=0) / len(dev)
        scores: dict[str, list[float]] = {precision: [] for precision in PRECISIONS}
        seconds: dict[str, list[float]] = {precision: [] for precision in PRECISIONS}
        for seed in options.seeds:
            rows = encode(random.Random(seed).sample(pool, options.rows), tokenizer, 128)
            bench = cost.Bench(source, rows, 16, "cpu")
            given = bench.inputs(method, method.finetune, {})
            for precision in PRECISIONS:
                changes = {"precision": precision, "epochs": options.epochs, "learning_rate": 1e-4, "warmup_ratio": 0.1}
                inputs = dataclasses.replace(
                    given,
                    phase=dataclasses.replace(given.phase, training=given.training.model_copy(update=changes)),
                    seed=seed,
                    tokenizer=tokenizer,
                    kind=kind,
                    labels=[str(label) for label in classes] or None,
                    pooling="mean",
                )
                loop = prepare(inputs).loop
                assert loop is not None
                started = time.process_time()
                loop.train()
                seconds[precision].append(time.process_time() - started)
                model: Any = loop.trainee.model
                found = predict(model, dev, pad_id=pad.pad_id, kind=kind, precision=precision)
                scores[precision].append(score(kind, found, dev))
        paired = [b - a for a, b in zip(scores["fp32"], scores["bf16"], strict=True)]
        half = stats.t.ppf(0.975, len(paired) - 1) * statistics.stdev(paired) / len(paired) ** 0.5
        mean = statistics.mean(paired)
        ratio = statistics.median(b / a for a, b in zip(seconds["fp32"], seconds["bf16"], strict=True))
        means = [f"{statistics.mean(scores[precision]):.1f}" for precision in PRECISIONS]
        means.insert(0, f"{constant:.1f}")
        print(f"| {name} | {' | '.join(means)} | {mean:+.1f} [{mean - half:+.1f}, {mean + half:+.1f}] | {ratio:.2f} |")
        print(f"  {name}, by seed: {scores}", file=sys.stderr, flush=True)
        sys.stdout.flush()


if __name__ == "__main__":
    main()
