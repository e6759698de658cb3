"""Predict a file of new texts with an exported model (not a DVC stage).

regft predict --model exports/hype_n-sst2-300-seed-0 --data new.csv --out predictions.csv
"""

from __future__ import annotations

import argparse
import re
import sys
from pathlib import Path

from regft_core.data.lengths import share
from regft_core.errors import ConfigError, ModelError
from regft_core.names import plural
from regft_core.serving.predict import predict_file

from .common import Argument, run, whole_number


def device_of(given: str) -> str:
    """The device that ``--device`` means on this machine. Raises ModelError when it is not there."""
    from regft_core.execution.executors import visible_devices

    if not re.fullmatch(r"auto|cpu|mps|cuda(:\d+)?", given):
        raise ModelError(
            "unknown-device", f"--device {given}: no such kind of device\n    -> one of auto, cpu, mps, cuda, cuda:N"
        )
    try:
        return visible_devices(given)[0]
    except ConfigError as error:
        problem = error.problems[0]
        raise ModelError(
            "device-missing", f"--device {given}: not available on this machine\n    -> {problem.hint}"
        ) from error


def main(root: Path, arguments: argparse.Namespace) -> None:
    """Predict every row of a file with an exported model; write one line per row, in the order of the file."""
    from regft_core.serving.model import load_served

    model = load_served(Path(arguments.model), device_of(arguments.device))
    counted = predict_file(
        model,
        Path(arguments.data),
        Path(arguments.out),
        text=arguments.text,
        text_pair=arguments.text_pair,
        keep=arguments.keep,
        batch_size=arguments.batch_size,
        overwrite=arguments.overwrite,
    )
    print(f"{arguments.out}: {plural(counted.rows, 'prediction')} in {counted.seconds:.1f} s")
    if counted.cut:
        rows = f"{plural(counted.cut, 'row')} ({share(counted.cut / counted.rows)})"
        text = (
            f"only the first {model.max_length} tokens of {rows} were read, the length that the model was trained with"
        )
        print(f"warning: {text}", file=sys.stderr)
    if counted.abstained:
        assert model.abstain is not None
        print(
            f"{plural(counted.abstained, 'row')} ({share(counted.abstained / counted.rows)}) not answered: "
            f"confidence below {model.abstain.threshold:.3f}, guaranteeing {model.abstain.accuracy:.0%} right answers"
        )
    if counted.empty:
        print(f"warning: no prediction for {plural(counted.empty, 'row')}, which have no text", file=sys.stderr)


if __name__ == "__main__":
    run(
        main,
        Argument("model", "directory that `regft export` wrote"),
        Argument("data", "file with the new texts: .csv, .tsv, .jsonl or .parquet, also .gz"),
        Argument("out", "file to write: .csv or .jsonl"),
        Argument("text", "column of the text; by default that of the training data", required=False),
        Argument(
            "text-pair", "column of the second text of pairs; by default that of the training data", required=False
        ),
        Argument("keep", "column to copy to the output; may be repeated", required=False, repeated=True),
        Argument("batch-size", "texts per forward pass", default=64, kind=whole_number),
        Argument("device", "auto, cpu, mps, cuda or cuda:N", default="auto"),
        Argument("overwrite", "replace an output that exists", flag=True),
    )
