"""From a file of labelled rows to a model that predicts.

Makes a project folder, compares methods by cross-validation within --minutes,
chooses one, trains it on all rows and exports it. Without --text and --label
it shows the columns of the file. An interrupted call continues when repeated.

examples
  regft fit reviews.csv --text review --label verdict
  regft fit pairs.csv --text one --pair other --label verdict --group product

next: run the line that it prints at the end, which predicts new texts
"""

from __future__ import annotations

import argparse
import os
import shlex
from pathlib import Path
from typing import Any

from regft_core.data.table import open_table
from regft_core.disk.reading import read_json
from regft_core.errors import ConfigError, Problem, RunFailed
from regft_core.fit.project import RECORD, Draft, make_folder_once, refusal
from regft_core.fit.rows import Asked, read_own
from regft_core.fit.setup import encoders_here, read_preset
from regft_core.grid.refit import refit
from regft_core.names import listing
from regft_core.runs.code import package_root
from regft_core.runs.work import Work
from regft_core.schema.file_format import FileFormat
from regft_core.serve.export import export
from regft_core.settings.files import RESULTS
from regft_core.settings.grid import Cell

from .common import ROWS, argument, asked_for, format_of, run
from .run import run_and_show

#: Where projects are made without ``--out``.
FOLDER = "fits"


def main(here: Path, arguments: argparse.Namespace) -> None:
    """Make a project folder, run it, and export the model that it decides for."""
    file = Path(arguments.file)
    if arguments.text is None or arguments.label is None:
        raise ConfigError([_columns_of(file, format_of(arguments))])
    asked = asked_for(file, arguments)
    folder = Path(arguments.out or f"{FOLDER}/{file.name.split('.')[0]}")
    root = _project(here)
    _make(root, here / folder, asked, arguments)
    run_and_show(here / folder)
    task = read_json(here / folder / RECORD)["task"]
    taken = _decided(here / folder, task)
    exported = os.path.relpath(export(refit(here / folder, taken, task)), here)
    print(f"report: {folder}/reports/report.html; to repeat: edit {folder}/params.yaml and call this again")
    print(f"model: {exported}. Predict new texts:")
    print(f"  regft predict --model {shlex.quote(exported)} --data new.csv --out predictions.csv")


def _columns_of(file: Path, how: FileFormat) -> Problem:
    """Return the problem of a call without --text or --label: it lists the columns. Raises DataError."""
    with open_table(file, how) as table:
        columns = listing(map(repr, table.names))
    hint = (
        f"regft fit {shlex.quote(str(file))} --text COLUMN --label COLUMN; {table.header} names the columns: {columns}"
    )
    return Problem("column-unnamed", str(file), 0, "", "which columns hold the text and the label?", hint)


def _project(here: Path) -> Path:
    """The project whose methods and run store are used: the working directory, else the checkout of this code."""
    code = package_root()
    return code if not (here / "params.yaml").is_file() and (code / "pyproject.toml").is_file() else here


def _make(root: Path, folder: Path, asked: Asked, arguments: argparse.Namespace) -> None:
    """Make the folder where it is not there. Raises ConfigError with all that is wrong, before anything is written."""
    rows, problems = read_own(asked)
    encoders, missing = encoders_here(root, arguments.model)
    problems += missing
    if not 0 < arguments.minutes < float("inf"):
        message = f"{arguments.minutes:g} is not a number of minutes above 0"
        problems.append(Problem("wrong-minutes", "--minutes", 0, "", message, "give for instance --minutes 30"))
    if refused := refusal(folder, asked.file):
        problems.append(refused)
    if problems or rows is None:
        raise ConfigError(problems)
    draft = Draft(root, asked, rows, read_preset(root), arguments.minutes, encoders, arguments.seed)
    print("\n".join(make_folder_once(draft, folder)), flush=True)


def _decided(folder: Path, task: str) -> str:
    """Return the method that the report takes. Raises RunFailed where that is a constant answer, or there is none."""
    results: dict[str, Any] = read_json(folder / RESULTS)
    for name, one in results[f"{task}-full"].items():
        if one.get("decision", {}).get("taken"):
            print(f"taken: {name}", flush=True)
            if Work(folder).finetune(Cell(name, task, "full")).reads_text:
                return name
            message = f"no method is better than {name}, which gives every text the same answer; no model was exported"
            hint = f"label more rows, or correct their labels; scores: {folder}/reports/report.html"
            raise RunFailed("constant-answer", f"{folder}: {message}\n    -> {hint}")
    raise RunFailed("nothing-to-take", f"{folder}: no method finished every seed; see reports/report.html")


if __name__ == "__main__":
    run(
        main,
        argument("file", "labelled rows: .csv, .tsv, .jsonl or .parquet, also .gz, or .xlsx"),
        argument("--text", "column of the text"),
        argument("--label", "column of the label: a class, a number, or several labels with one of ; | , between them"),
        *ROWS,
        argument(
            "--minutes", "for all of it on this machine; they choose encoder, methods, trials", default=30.0, type=float
        ),
        argument("--out", f"folder to make; {FOLDER}/NAME OF THE FILE when absent"),
        argument("--model", "encoder: an alias or a directory; the strongest that fits when absent"),
        argument("--seed", "another number splits into other folds", default=0, type=int),
    )
