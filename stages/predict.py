"""Predict a file of new texts with an exported model (not a DVC stage).

regft predict --model exports/hype_n-sst2-300-seed-0 --data new.csv --out predictions.csv
"""

from __future__ import annotations

import argparse
import sys
from pathlib import Path

from regft_core.data.lengths import share
from regft_core.names import plural
from regft_core.serving.predict import predict_file

from .common import SERVING, Argument, device_of, run


def main(root: Path, arguments: argparse.Namespace) -> None:
    """Predict every row of a file with an exported model; write one line per row, in the order of the file."""
    from regft_core.serving.model import load_served

    model = load_served(Path(arguments.model), device_of(arguments.device), arguments.precision)
    counted = predict_file(
        model,
        Path(arguments.data),
        Path(arguments.out),
        text=arguments.text,
        text_pair=arguments.text_pair,
        keep=arguments.keep,
        overwrite=arguments.overwrite,
    )
    before = f", {counted.resumed} of them by an earlier call" if counted.resumed else ""
    print(f"{arguments.out}: {plural(counted.rows, 'prediction')} in {counted.seconds:.1f} s{before}")
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
    run(main, *SERVING, Argument("keep", "column to copy; may be repeated", required=False, repeated=True))
