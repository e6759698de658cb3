"""From a file of labelled rows to a model that predicts.

Makes a project folder, compares methods by cross-validation within --minutes,
chooses one, trains it on all rows and exports it. Without --text and --label
it shows the columns of the file. An interrupted call continues when repeated.

examples
  regft fit reviews.csv --text review --label verdict
  regft fit pairs.csv --text one --pair other --label verdict --group product
  regft fit reviews.csv --text review --label verdict --ood another_year.csv
  regft fit reviews.csv --text review --label verdict --unlabelled more.csv

next: run the line that it prints at the end, which predicts new texts
"""

from __future__ import annotations

import argparse
import os
import shlex
from pathlib import Path

from regft_core.data.table import open_table
from regft_core.errors import ConfigError, Problem
from regft_core.fit.fitting import FOLDER, Wanted, fit_rows
from regft_core.names import listing
from regft_core.schema.file_format import FileFormat

from .cli import BEGAN
from .common import ROWS, argument, asked_for, format_of, run
from .run import run_and_show


def main(here: Path, arguments: argparse.Namespace) -> None:
    """Make a project folder, run it, and export the model that it decides for."""
    file = Path(arguments.file)
    if arguments.text is None or arguments.label is None:
        raise ConfigError([_columns_of(file, format_of(arguments))])
    asked = asked_for(file, arguments)
    wanted = Wanted(here, asked, arguments.out, arguments.minutes, arguments.model, arguments.seed, BEGAN)
    taken = fit_rows(wanted, run_and_show, lambda line: print(line, flush=True))
    folder, model = os.path.relpath(wanted.place, here), os.path.relpath(taken.path, here)
    if taken.not_run:
        print(f"not run within {wanted.minutes:g} minutes: {', '.join(taken.not_run)}; more --minutes go on with them")
    print(f"report: {folder}/reports/report.html; to repeat: edit {folder}/params.yaml and call this again")
    print(f"model: {model}. Predict new texts:")
    print(f"  regft predict --model {shlex.quote(model)} --data new.csv --out predictions.csv")


def _columns_of(file: Path, how: FileFormat) -> Problem:
    """Return the problem of a call without --text or --label: it lists the columns. Raises DataError."""
    with open_table(file, how) as table:
        columns = listing(map(repr, table.names))
    hint = (
        f"regft fit {shlex.quote(str(file))} --text COLUMN --label COLUMN; {table.header} names the columns: {columns}"
    )
    return Problem("column-unnamed", str(file), 0, "", "which columns hold the text and the label?", hint)


if __name__ == "__main__":
    run(
        main,
        argument("file", "labelled rows: .csv, .tsv, .jsonl or .parquet, also .gz, or .xlsx"),
        argument("--text", "column of the text"),
        argument("--label", "column of the label: a class, a number, or several labels with one of ; | , between them"),
        argument(
            "--ood",
            "file with the same columns and other texts: a set out of distribution; may be repeated",
            action="append",
        ),
        argument("--unlabelled", "file of the columns of the texts, for methods that read texts without labels"),
        *ROWS,
        argument(
            "--minutes",
            "time for everything on this machine; decides on encoder, methods and trials",
            default=30.0,
            type=float,
        ),
        argument("--out", f"folder to make; {FOLDER}/NAME OF THE FILE when absent"),
        argument("--model", "encoder: an alias or a directory; the strongest that fits when absent"),
        argument("--seed", "another number splits into other folds", default=0, type=int),
    )
