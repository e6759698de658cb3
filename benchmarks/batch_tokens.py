"""Rows per CPU second of an evaluation by the tokens of a batch, on real texts, interleaved in one process.

    python benchmarks/batch_tokens.py --data DIR --sets sst2 mrpc qnli --rows 128 --rounds 3

Development rows by the default encoder in fp32, one thread. ``64 rows`` cuts batches by rows; ``multiple of 8`` pads
batches of 1,024 tokens to such a width. Medians over the rounds. DIR is that of ``real_tasks.py``.
"""

from __future__ import annotations

import argparse
import gzip
import json
import statistics
import time
from collections.abc import Callable
from functools import partial
from itertools import islice
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from regft_core.data.batches import collate, evaluation_batches, longest_first, padding_of
from regft_core.data.encode import Encoded, encode
from regft_core.data.examples import Example
from regft_core.models.load import load_classifier, load_tokenizer
from regft_core.models.sites import classify
from regft_core.models.source import resolve_model
from regft_core.schema.encoder import EncoderConfig
from regft_core.schema.training import DropoutConfig

COLUMNS = {"sst2": ("sentence", None), "mrpc": ("sentence1", "sentence2"), "qnli": ("sentence1", "sentence2")}


def read(data: Path, name: str, rows: int) -> list[Example]:
    first, second = COLUMNS[name]
    with gzip.open(data / name / "dev.jsonl.gz", "rt", encoding="utf-8") as lines:
        given = [json.loads(line) for line in islice(lines, rows)]
    return [Example(str(i), row[first], row[second] if second else None, 0) for i, row in enumerate(given)]


def run(model: Any, encoded: Encoded, batches: list[list[int]], pad_id: int, multiple: int = 1) -> float:
    """CPU seconds of all batches, collation included."""
    started = time.process_time()
    with torch.inference_mode():
        for rows in batches:
            batch = collate(encoded, rows, pad_id)
            inputs: dict[str, Tensor] = batch.model_inputs()
            more = -batch.input_ids.shape[1] % multiple
            if more:
                padding = {"input_ids": pad_id, "attention_mask": 0, "token_type_ids": 0}
                inputs = {n: torch.nn.functional.pad(t, (0, more), value=padding[n]) for n, t in inputs.items()}
            classify(model, inputs, padded=batch.padded or bool(more))
    return time.process_time() - started


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data", type=Path, required=True)
    parser.add_argument("--sets", nargs="+", choices=COLUMNS, default=list(COLUMNS))
    parser.add_argument("--rows", type=int, default=128)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--tokens", type=int, nargs="+", default=[256, 512, 1024, 2048, 4096, 8192])
    options = parser.parse_args()
    torch.set_num_threads(1)
    source = resolve_model(EncoderConfig(name="minilm"), Path())
    tokenizer = load_tokenizer(source)
    model: Any = load_classifier(source, kind="classification", labels=("a", "b"), dropout=DropoutConfig(), head_seed=0)
    model.eval()
    pad = padding_of(tokenizer).pad_id
    print(f"{options.rows} rows, {torch.backends.cpu.get_cpu_capability()}, torch {torch.__version__}")
    for name in options.sets:
        encoded = encode(read(options.data, name, options.rows), tokenizer, 128)
        order = longest_first(encoded)
        by_rows = [order[start : start + 64] for start in range(0, len(order), 64)]
        ways: dict[str, Callable[[], float]] = {"64 rows": partial(run, model, encoded, by_rows, pad)}
        for tokens in options.tokens:
            cut = evaluation_batches(encoded, tokens)
            ways[f"{tokens} tokens"] = partial(run, model, encoded, cut, pad)
        cut = evaluation_batches(encoded, 1024)
        ways["1024 tokens, multiple of 8"] = partial(run, model, encoded, cut, pad, 8)
        spent: dict[str, list[float]] = {way: [] for way in ways}
        for _ in range(options.rounds):
            for way, timed in ways.items():
                spent[way].append(timed())
        for way, seconds in spent.items():
            print(f"| {name} | {way} | {options.rows / statistics.median(seconds):.0f} |", flush=True)


if __name__ == "__main__":
    main()
