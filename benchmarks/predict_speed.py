"""Rows per CPU second of an export in every precision, and how far its answers move.

    regft export --method linear_probe --task sst2 --size 300 --seed 0 --onnx
    OMP_NUM_THREADS=1 python benchmarks/predict_speed.py --model exports/linear_probe-sst2-300-seed-0 --data dev.csv

One thread, CPU seconds, tokenising included; the ways take turns, and the median of the rounds counts. The pipeline of
transformers gets the same encoder with an untrained head of its family, so only its speed counts; single texts only.
"""

from __future__ import annotations

import argparse
import statistics
import time
from collections.abc import Callable
from functools import partial
from itertools import islice
from pathlib import Path
from typing import Any

import numpy as np
import torch

from regft_core.data.batches import collate, evaluation_batches, evaluation_tokens
from regft_core.data.encode import encode
from regft_core.data.examples import Example
from regft_core.data.table import open_table
from regft_core.errors import ModelError
from regft_core.models.onnx import FILE
from regft_core.serve.answers import columns_of_requests, example_of
from regft_core.serve.model import ServedModel, load_served

Way = Callable[[], Any]


def by_onnx(model: ServedModel, directory: Path) -> Callable[[list[Example]], Any]:
    """Probabilities that onnxruntime gives, in batches of as many tokens."""
    import onnxruntime

    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = options.inter_op_num_threads = 1
    session = onnxruntime.InferenceSession(str(directory / FILE), options, providers=["CPUExecutionProvider"])
    names = [one.name for one in session.get_inputs()]

    def answer(examples: list[Example]) -> Any:
        encoded = encode(examples, model.tokenizer, model.served.max_length, rows_per_example=model.rows_per_example)
        logits: Any = np.empty((len(examples), len(model.labels)))
        for rows in evaluation_batches(encoded, evaluation_tokens("cpu")):
            batch = collate(encoded, rows, model.padding).model_inputs()
            logits[rows] = session.run(["logits"], {name: batch[name].numpy() for name in names})[0]
        return softmax(logits / (model.served.temperature or 1.0))

    return answer


def by_pipeline(model: ServedModel, texts: list[str], rows: int, by_length: bool) -> Way:
    """``transformers.pipeline`` on batches of ``rows`` texts, in their order or the longest first.

    It multiplies as torch does by itself (models/products.py).
    """
    from transformers import AutoModelForSequenceClassification, pipeline

    own: Any = model.model
    other = AutoModelForSequenceClassification.from_config(own.config).eval()
    other.base_model.load_state_dict(own.base_model.state_dict(), strict=False)
    answer = pipeline("text-classification", model=other, tokenizer=model.tokenizer, device="cpu")
    order = sorted(texts, key=len, reverse=True) if by_length else texts

    def as_installed() -> Any:
        with torch.backends.mkldnn.flags(enabled=False):
            return answer(order, batch_size=rows, truncation=True, max_length=model.served.max_length)

    return as_installed


def softmax(logits: Any) -> Any:
    powers = np.exp(logits - logits.max(1, keepdims=True))
    return powers / powers.sum(1, keepdims=True)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--model", type=Path, required=True)
    parser.add_argument("--data", type=Path, required=True)
    parser.add_argument("--text")
    parser.add_argument("--rows", type=int, default=872)
    parser.add_argument("--rounds", type=int, default=3)
    given = parser.parse_args()
    torch.set_num_threads(1)
    plain = load_served(given.model, "cpu")
    with open_table(given.data) as table:
        columns = columns_of_requests(plain, given.text, None)
        found = [example_of(row, columns) for row in islice(table.rows, given.rows)]
    examples = [example for example in found if example is not None]
    ways: dict[str, Way] = {"fp32": lambda: plain.scores(examples)}
    for precision in ("bf16", "int8"):
        try:
            other = load_served(given.model, "cpu", precision)
            ways[precision] = partial(other.scores, examples)
        except ModelError as error:
            print(str(error).splitlines()[0])
    if (given.model / FILE).is_file():
        run = by_onnx(plain, given.model)
        ways["onnxruntime, fp32"] = lambda: run(examples)
    if all(example.text_pair is None for example in examples):
        texts = [example.text for example in examples]
        for by_length in (False, True):
            name = f"transformers.pipeline, 32 rows a batch{', longest first' if by_length else ''}"
            ways[name] = by_pipeline(plain, texts, 32, by_length)
    spent: dict[str, list[float]] = {name: [] for name in ways}
    scores: dict[str, Any] = {}
    for _ in range(given.rounds + 1):  # the first round warms up
        for name, way in ways.items():
            begun = time.process_time()
            scores[name] = way()
            spent[name].append(time.process_time() - begun)
    reference = scores["fp32"]
    print(f"{len(examples)} rows, {torch.backends.cpu.get_cpu_capability()}, torch {torch.__version__}")
    print("| way | rows per CPU-s | same answers | largest change of a probability |\n|---|---|---|---|")
    for name, seconds in spent.items():
        rate = len(examples) / statistics.median(seconds[1:])
        if isinstance(scores[name], list):  # of the pipeline
            print(f"| {name} | {rate:.0f} | | |")
            continue
        same = (scores[name].argmax(1) == reference.argmax(1)).mean()
        print(f"| {name} | {rate:.0f} | {100 * same:.1f}% | {abs(scores[name] - reference).max():.1e} |")


if __name__ == "__main__":
    main()
