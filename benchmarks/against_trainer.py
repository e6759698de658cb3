"""A step of regft beside one of the Hugging Face Trainer, on real texts, interleaved in one process.

    pip install accelerate        # which the Trainer needs and regft does not
    python benchmarks/against_trainer.py --data DIR --tasks cola sst2 mrpc rte

The same encoder, rows, batch size, clipping and AdamW in fp32. ``padded`` is the Trainer as transformers' examples
call it, every text padded to the maximum length; ``dynamic`` pads to the longest text of a batch. regft makes batches
of texts of similar length. In every round each of the three makes as many steps, one after the other; ratios are
medians over rounds. DIR is that of ``real_tasks.py``.
"""

from __future__ import annotations

import argparse
import gzip
import json
import statistics
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch

sys.path.insert(0, str(Path(__file__).resolve().parent))
import cost
import real_tasks

from regft_core.config.schema.encoder import EncoderConfig
from regft_core.config.schema.training import TrainingConfig
from regft_core.data.batches import padding_of
from regft_core.data.encode import Encoded, encode
from regft_core.data.examples import Example
from regft_core.models.load import load_classifier, load_tokenizer, quiet
from regft_core.models.source import ModelSource, resolve_model
from regft_core.training.loop import Loop
from regft_core.training.stack import Stack
from regft_core.training.stream import BatchStream
from regft_core.training.trainee import Trainee

TASKS = ("cola", "sst2", "mrpc", "rte")


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


def trainer_steps(
    source: ModelSource, tokenizer: Any, given: list[Example], training: TrainingConfig, options: Any, *, padded: bool
) -> Callable[[int], float]:
    """What makes so many Trainer steps; returns seconds per step, from the first one's begin to the last one's end."""
    from transformers import DataCollatorWithPadding, PrinterCallback, Trainer, TrainerCallback, TrainingArguments

    rows = [
        {
            **tokenizer(
                example.text,
                example.text_pair,
                truncation=True,
                max_length=options.length,
                padding="max_length" if padded else False,
            ),
            "labels": example.label,
        }
        for example in given
    ]
    model = classifier(source, training)

    class Clock(TrainerCallback):  # type: ignore[misc]
        begun = ended = 0.0

        def on_step_begin(self, args: Any, state: Any, control: Any, **more: Any) -> None:
            self.begun = self.begun or cost.CLOCK[0]()

        def on_step_end(self, args: Any, state: Any, control: Any, **more: Any) -> None:
            if options.device.startswith("cuda"):
                torch.cuda.synchronize()
            self.ended = cost.CLOCK[0]()

    def run(steps: int) -> float:
        clock = Clock()
        with tempfile.TemporaryDirectory() as folder:
            arguments = TrainingArguments(
                output_dir=folder,
                max_steps=steps,
                per_device_train_batch_size=training.batch_size,
                learning_rate=training.learning_rate,
                max_grad_norm=training.clip_norm or 0.0,
                use_cpu=not options.device.startswith("cuda"),
                report_to="none",
                save_strategy="no",
                logging_strategy="no",
                disable_tqdm=True,
                dataloader_pin_memory=options.device.startswith("cuda"),
            )
            trainer = Trainer(
                model=model,
                args=arguments,
                train_dataset=rows,
                data_collator=DataCollatorWithPadding(tokenizer),
                callbacks=[clock],
            )
            trainer.remove_callback(PrinterCallback)
            with quiet():
                trainer.train()
        return (clock.ended - clock.begun) / steps

    return run


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
    print("| task | ms per step, regft | Trainer, dynamic / regft | Trainer, padded / regft |")
    print("|---|---|---|---|")
    for task in options.tasks:
        given = read_examples(options.data, task, options.rows)
        loop = own_loop(source, tokenizer, encode(given, tokenizer, options.length), training, options.device)
        loop.trainee.model.train()
        arms: dict[str, Callable[[int], float]] = {
            "regft": lambda steps, loop=loop: cost.run_steps(loop, steps, loop.trainee.device),  # type: ignore[misc]
            "dynamic": trainer_steps(source, tokenizer, given, training, options, padded=False),
            "padded": trainer_steps(source, tokenizer, given, training, options, padded=True),
        }
        seconds: dict[str, list[float]] = {name: [] for name in arms}
        for round_ in range(options.rounds + 1):
            for name, run in arms.items():
                took = run(options.steps if round_ else 1)
                if round_:  # the first makes states and warms up
                    seconds[name].append(took)
        own = seconds["regft"]
        ratios = {
            name: statistics.median(a / b for a, b in zip(seconds[name], own, strict=True))
            for name in ("dynamic", "padded")
        }
        milliseconds = 1000 * statistics.median(own)
        print(f"| {task} | {milliseconds:.0f} | {ratios['dynamic']:.2f} | {ratios['padded']:.2f} |", flush=True)


if __name__ == "__main__":
    main()
