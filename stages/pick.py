r"""Pick the unlabelled rows that are worth labelling next.

Writes rows that the model is unsure of and that differ from each other, the
most useful one first.

examples
  regft pick --model exports/lp_ft-film_polarity-200-seed-0 \
    --data unlabelled.csv --rows 50 --out to_label.csv

next: label the rows, add them to your file, and run `regft fit` again
"""

from __future__ import annotations

import argparse
from pathlib import Path

from regft_core.names import plural

from .common import DATA, FORMAT, MODEL, OUT, OVERWRITE, SERVING, argument, format_of, run, served, whole_number


def main(root: Path, arguments: argparse.Namespace) -> None:
    """Write the picked rows."""
    from regft_core.serve.pick import pick_file

    picked = pick_file(
        served(arguments),
        Path(arguments.data),
        Path(arguments.out),
        arguments.rows,
        format_of(arguments),
        text=arguments.text,
        text_pair=arguments.text_pair,
        overwrite=arguments.overwrite,
    )
    print(f"{arguments.out}: {plural(picked.rows, 'row')} of {picked.read} to label next")
    if picked.empty or picked.repeated:
        print(f"left out: {picked.empty} without a text, {picked.repeated} with the text of an earlier row")


if __name__ == "__main__":
    run(
        main,
        MODEL,
        argument("--data", DATA, required=True),
        argument("--out", OUT, required=True),
        argument("--rows", "how many rows to pick", default=50, type=whole_number),
        *SERVING,
        *FORMAT,
        OVERWRITE,
    )
