"""A step of regft beside one of the Hugging Face Trainer, on real texts, interleaved in one process.

    pip install accelerate        # which the Trainer needs and regft does not
    python benchmarks/against_trainer.py --data DIR --tasks cola sst2 mrpc rte

The same encoder, rows, batch size, clipping and AdamW in fp32. regft makes batches of texts of similar length. Every
Trainer is built once and trains on where it stopped. In every round each arm makes as many steps, one after the other;
ratios are medians over rounds. Arms:

- padded: every text padded to the maximum length, as transformers' examples call it;
- dynamic: padded to the longest text of a batch;
- grouped: dynamic, with the Trainer's own batches of similar length (``train_sampling_strategy: group_by_length``);
- same: dynamic, with the batches of regft in their order, so that what is left is the cost of the loops;
- as installed: dynamic, with torch's own products. The other arms multiply as regft does (execution/products.py), which
  is a difference only on processors on which MKL is slow.

Where setfit is installed (``pip install -e '.[setfit]'``), a second table has a step of the contrastive phase of the
method ``setfit`` beside one of the package's trainer: 16 pairs each. regft encodes 24 texts for them, since the two
pairs of an anchor share its vector, and the package 32.

DIR is that of ``real_tasks.py``.
"""

from __future__ import annotations

import argparse
import gzip
import json
import statistics
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterator
from functools import partial
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import torch

sys.path.insert(0, str(Path(__file__).resolve().parent))
import cost
import real_tasks

from regft_core.data.batches import padding_of
from regft_core.data.encode import Encoded, encode
from regft_core.data.examples import Example
from regft_core.models.load import load_classifier, load_tokenizer, quiet
from regft_core.models.source import ModelSource, resolve_model
from regft_core.schema.encoder import EncoderConfig
from regft_core.schema.training import TrainingConfig
from regft_core.training.loop import Loop
from regft_core.training.stack import Stack
from regft_core.training.stream import BatchStream
from regft_core.training.trainee import Trainee

TASKS = ("cola", "sst2", "mrpc", "rte")
ARMS = ("same", "grouped", "dynamic", "padded")
INSTALLED = "as installed"


def read_examples(data: Path, task: str, rows: int) -> list[Example]:
    """The first ``rows`` training examples of a set below ``data``."""
    files = real_tasks.SETS[task]
    found = []
    with gzip.open(data / files.folder / f"{files.train}.jsonl.gz", "rt", encoding="utf-8") as lines:
        for line in lines:
            row = json.loads(line)
            text = row["sentence"] if "sentence" in row else row["sentence1"]
            found.append(Example(str(row["idx"]), text, row.get("sentence2"), int(row["label"])))
            if len(found) == rows:
                break
    return found


def classifier(source: ModelSource, training: TrainingConfig) -> Any:
    return load_classifier(
        source, kind="classification", labels=("a", "b"), dropout=training.dropout, head_seed=0
    ).train()


def own_loop(source: ModelSource, tokenizer: Any, encoded: Encoded, training: TrainingConfig, device: str) -> Loop:
    """Plain fine-tuning of regft."""
    from regft_core.hooks.declare import Setting

    setting = Setting("classification", 2, 0, training)
    model = classifier(source, training).to(device)
    trainee = Trainee(model, tokenizer, source, 0, "finetune", torch.device(device))
    stream = BatchStream(
        encoded,
        kind="classification",
        padding=padding_of(tokenizer),
        seed=0,
        stream="finetune",
        batch_size=training.batch_size,
        bucket_batches=training.bucket_batches,
        device=trainee.device,
    )
    return Loop(trainee, Stack([], setting), stream, training)


class Continuing:
    """A Trainer that makes so many steps when asked, and waits in between.

    It trains in a thread of its own, because its loop cannot be left and entered again. One thread works at a time.
    """

    def __init__(self, build: Callable[..., Any], device: str) -> None:
        from transformers import TrainerCallback

        self._device, self._left, self._over = device, 0, False
        self._error: BaseException | None = None
        self._asked, self._answered = threading.Semaphore(0), threading.Semaphore(0)
        outer = self

        class Turns(TrainerCallback):  # type: ignore[misc]
            def on_step_begin(self, args: Any, state: Any, control: Any, **more: Any) -> None:
                if outer._left == 0:
                    outer._answered.release()
                    outer._asked.acquire()
                    if outer._over:
                        raise SystemExit  # ends this thread only

            def on_step_end(self, args: Any, state: Any, control: Any, **more: Any) -> None:
                outer._left -= 1

        self._trainer, self._threads = build(callbacks=[Turns()]), torch.get_num_threads()
        threading.Thread(target=self._train, daemon=True).start()
        self._wait()

    def _train(self) -> None:
        torch.set_num_threads(self._threads)  # a new thread has those of the environment
        try:
            with quiet():
                self._trainer.train()
        except BaseException as error:  # told where the steps were asked for
            self._error = error
        self._answered.release()

    def _wait(self) -> None:
        self._answered.acquire()
        if self._error is not None:
            raise self._error

    def run(self, steps: int) -> float:
        """Seconds per step, from the first one's begin to the begin of the one after the last."""
        started, self._left = cost.CLOCK[0](), steps
        self._asked.release()
        self._wait()
        if self._device.startswith("cuda"):
            torch.cuda.synchronize()
        return (cost.CLOCK[0]() - started) / steps

    def close(self) -> None:
        """End the training and free its memory."""
        self._over = True
        self._asked.release()
        self._answered.acquire()
        del self._trainer


class SameBatches:
    """Row numbers of the batches of a stream, epoch after epoch, as a ``batch_sampler``."""

    def __init__(self, stream: BatchStream) -> None:
        self._stream = stream

    def __iter__(self) -> Iterator[list[int]]:
        for epoch in range(10_000):
            yield from self._stream.order(epoch)

    def __len__(self) -> int:
        return 10_000 * self._stream.batches_per_epoch


def trainer_arm(
    arm: str, source: ModelSource, tokenizer: Any, given: list[Example], loop: Loop, options: Any, folder: str
) -> Continuing:
    """One of ``ARMS``."""
    from transformers import DataCollatorWithPadding, PrinterCallback, Trainer, TrainingArguments

    training = loop.training
    rows = [
        {
            **tokenizer(
                example.text,
                example.text_pair,
                truncation=True,
                max_length=options.length,
                padding="max_length" if arm == "padded" else False,
            ),
            "labels": example.label,
        }
        for example in given
    ]
    collate = DataCollatorWithPadding(tokenizer)

    class Given(Trainer):  # type: ignore[misc]
        def get_train_dataloader(self) -> Any:
            return torch.utils.data.DataLoader(rows, batch_sampler=SameBatches(loop.stream), collate_fn=collate)  # type: ignore[arg-type]

    def build(callbacks: list[Any]) -> Any:
        arguments = TrainingArguments(
            output_dir=folder,
            max_steps=1_000_000,
            per_device_train_batch_size=training.batch_size,
            learning_rate=training.learning_rate,
            max_grad_norm=training.clip_norm or 0.0,
            train_sampling_strategy="group_by_length" if arm == "grouped" else "random",
            use_cpu=not options.device.startswith("cuda"),
            report_to="none",
            save_strategy="no",
            logging_strategy="no",
            disable_tqdm=True,
            dataloader_pin_memory=options.device.startswith("cuda"),
        )
        kind = Given if arm == "same" else Trainer
        model = classifier(source, training)
        trainer = kind(model=model, args=arguments, train_dataset=rows, data_collator=collate, callbacks=callbacks)
        trainer.remove_callback(PrinterCallback)
        return trainer

    return Continuing(build, options.device)


def setfit_loop(source: ModelSource, encoded: Encoded, device: str) -> Loop:
    """The contrastive phase of the method ``setfit``."""
    bench = cost.Bench(source, encoded, 8, device)
    _, inputs = next(iter(bench.phases(cost.all_methods(cost.ROOT)["setfit"])))
    loop = bench.loop(inputs)
    assert loop is not None
    return loop


def setfit_trainer(source: ModelSource, given: list[Example], options: Any, folder: str) -> Continuing:
    """The trainer of the package, at its defaults."""
    from datasets import Dataset
    from setfit import SetFitModel, Trainer, TrainingArguments

    texts = [" ".join(filter(None, (example.text, example.text_pair))) for example in given]
    rows = Dataset.from_dict({"text": texts, "label": [int(example.label) for example in given]})
    arguments = TrainingArguments(
        output_dir=folder, max_steps=1_000_000, report_to="none", save_strategy="no", logging_strategy="no"
    )
    with source.opened() as path:
        model = SetFitModel.from_pretrained(str(path), device=options.device)
    model.model_body.max_seq_length = options.length

    def build(callbacks: list[Any]) -> Any:
        return Trainer(model=model, args=arguments, train_dataset=rows, callbacks=callbacks)

    return Continuing(build, options.device)


def interleaved(arms: dict[str, Callable[[int], float]], options: Any) -> dict[str, list[float]]:
    """Seconds per step of every arm in every round."""
    seconds: dict[str, list[float]] = {name: [] for name in arms}
    for round_ in range(options.rounds + 1):
        for name, run in arms.items():
            took = run(options.steps if round_ else 2 * options.steps)
            if round_:  # the first makes states, and touches memory that all later steps use again
                seconds[name].append(took)
    return seconds


def row(seconds: dict[str, list[float]], arms: tuple[str, ...]) -> str:
    """Milliseconds of a step of regft, and what the others take relative to it."""
    own = seconds["regft"]
    ratios = [statistics.median(a / b for a, b in zip(seconds[arm], own, strict=True)) for arm in arms]
    return " | ".join([f"{1000 * statistics.median(own):.0f}", *(f"{ratio:.2f}" for ratio in ratios)])


def against_setfit(source: ModelSource, tokenizer: Any, options: Any, folder: str) -> None:
    """Print the second table."""
    print(
        "\n| task | ms per step of 16 pairs, regft | setfit / regft | setfit, as installed / regft |",
        "|---|---|---|---|",
        sep="\n",
    )
    for task in options.tasks:
        given = read_examples(options.data, task, options.rows)
        loop = setfit_loop(source, encode(given, tokenizer, options.length), options.device)
        trainer = setfit_trainer(source, given, options, folder)
        own = partial(cost.run_steps, loop, device=loop.trainee.device)
        arms = {"regft": own, "setfit": trainer.run, INSTALLED: as_installed(trainer.run)}
        seconds = interleaved(arms, options)
        trainer.close()
        print(f"| {task} | {row(seconds, ('setfit', INSTALLED))} |", flush=True)


def as_installed(run: Callable[[int], float]) -> Callable[[int], float]:
    """``run`` with the products that torch has by itself."""

    def with_own_products(steps: int) -> float:
        with torch.backends.mkldnn.flags(enabled=False):
            return run(steps)

    return with_own_products


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data", type=Path, required=True)
    parser.add_argument("--tasks", nargs="*", default=list(TASKS), choices=sorted(real_tasks.SETS))
    parser.add_argument("--encoder", default="minilm")
    parser.add_argument("--rows", type=int, default=300)
    parser.add_argument("--batch", type=int, default=16)
    parser.add_argument("--length", type=int, default=128)
    parser.add_argument("--steps", type=int, default=3)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--device", default="cpu")
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--cpu-seconds", action="store_true", help="as in benchmarks/cost.py")
    options = parser.parse_args()
    torch.set_num_threads(options.threads)
    if options.cpu_seconds:
        cost.CLOCK[0] = time.process_time
    try:
        import accelerate  # noqa: F401
    except ImportError:
        parser.error("the Hugging Face Trainer needs the package accelerate: pip install accelerate")
    source = resolve_model(EncoderConfig(name=options.encoder), cost.ROOT)
    tokenizer = load_tokenizer(source)
    training = TrainingConfig(batch_size=options.batch, learning_rate=2e-5, warmup_ratio=0.0, epochs=10_000)
    print("| task | ms per step, regft | " + " | ".join(f"Trainer, {arm} / regft" for arm in (*ARMS, INSTALLED)) + " |")
    print("|---|---" + "|---" * (len(ARMS) + 1) + "|")
    with tempfile.TemporaryDirectory() as folder:
        for task in options.tasks:
            given = read_examples(options.data, task, options.rows)
            loop = own_loop(source, tokenizer, encode(given, tokenizer, options.length), training, options.device)
            loop.trainee.model.train()
            trainers = {arm: trainer_arm(arm, source, tokenizer, given, loop, options, folder) for arm in ARMS}
            arms: dict[str, Callable[[int], float]] = {
                "regft": partial(cost.run_steps, loop, device=loop.trainee.device)
            }
            arms |= {arm: trainer.run for arm, trainer in trainers.items()}
            arms[INSTALLED] = as_installed(trainers["dynamic"].run)
            seconds = interleaved(arms, options)
            for trainer in trainers.values():
                trainer.close()
            print(f"| {task} | {row(seconds, (*ARMS, INSTALLED))} |", flush=True)
        if find_spec("setfit") is not None:
            against_setfit(source, tokenizer, options, folder)


if __name__ == "__main__":
    main()
