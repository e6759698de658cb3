"""From labelled rows to a project, and to a model."""

from __future__ import annotations

import argparse
import os
import shlex
from pathlib import Path

from regft_core.data.table import open_table
from regft_core.errors import ConfigError, Problem
from regft_core.fit.fitting import FOLDER, Wanted, fit_rows
from regft_core.fit.new_project import make_project
from regft_core.fit.own_rows import Asked
from regft_core.names import listing
from regft_core.runs.opened_project import open_project
from regft_core.schema.sources import FileFormat

from .cli import BEGAN
from .common import ROWS, argument, asked_for, command, format_of, refuse_contradictions
from .run import run_and_show


@command(
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
def fit(here: Path, arguments: argparse.Namespace) -> None:
    """From a file of labelled rows to a model that predicts.

    Makes a project folder, compares methods by cross-validation within --minutes,
    chooses one, makes a model of all rows and exports it. Without --text and
    --label it shows the columns of the file. An interrupted call continues when
    repeated.

    examples
      regft fit reviews.csv --text review --label verdict
      regft fit pairs.csv --text one --pair other --label verdict --group product
      regft fit reviews.csv --text review --label verdict --ood another_year.csv
      regft fit reviews.csv --text review --label verdict --unlabelled more.csv

    next: run the line that it prints at the end, which predicts new texts
    """
    file = Path(arguments.file)
    if arguments.text is None or arguments.label is None:
        raise ConfigError([_columns_of(file, format_of(arguments))])
    asked = asked_for(file, arguments)
    wanted = Wanted(here, asked, arguments.out, arguments.minutes, arguments.model, arguments.seed, BEGAN)
    taken = fit_rows(wanted, run_and_show, lambda line: print(line, flush=True))
    folder, model = os.path.relpath(wanted.place, here), os.path.relpath(taken.path, here)
    if taken.not_run:
        print(f"not run within {wanted.minutes:g} minutes: {', '.join(taken.not_run)}; more --minutes go on from there")
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


@command(
    argument("folder", "folder to make"),
    argument("--task", "file of labelled rows: .csv, .tsv, .jsonl, .parquet or .xlsx; an example without it"),
    argument("--text", "its column of the text"),
    argument("--label", "its column of the label"),
    *ROWS,
    argument("--model", "alias, local directory or hub id of the encoder; minilm when absent"),
)
def init(root: Path, arguments: argparse.Namespace) -> None:
    """Make a new project: params.yaml, the pipeline, one task.

    Writes a folder that does not exist yet or is empty. With --task the file is
    copied into data/, and cross-validation evaluates every row once. Git is
    optional.

    examples
      regft init my-project
      regft init reviews --task reviews.csv --text review --label verdict

    next: cd reviews && regft run
    """
    model = arguments.model or ""
    if model and (root / model).is_dir():
        model = os.path.abspath(root / model)
    folder = root / arguments.folder
    for line in make_project(folder, _rows(arguments), model):
        print(f"note: {line}")
    print(f"made {arguments.folder}; its README.md says what is where. Next:")
    try:
        open_project(folder)
        print(f"  cd {arguments.folder} && regft run")
    except ConfigError as error:
        print(f"  cd {arguments.folder}, mend this, then regft run:")
        print("\n".join(f"  {problem}" for problem in error.problems))


def _rows(arguments: argparse.Namespace) -> Asked | None:
    """Return the file that was given. Raises ConfigError for a file without columns, and for columns without one."""
    needed = {"--task": arguments.task, "--text": arguments.text, "--label": arguments.label}
    more = [getattr(arguments, name[2:]) for name, _ in ROWS]
    if not any((*needed.values(), *more)):
        return None
    lacking = [name for name, value in needed.items() if value is None]
    message = f"{', '.join(lacking)} missing: a file needs the names of its columns"
    refuse_contradictions([(lacking, message)], "regft init reviews --task reviews.csv --text COLUMN --label COLUMN")
    return asked_for(Path(arguments.task), arguments)
