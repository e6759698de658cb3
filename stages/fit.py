"""From labelled rows to a project and a model; from a finished run to a folder that predicts, and to a submission."""

from __future__ import annotations

import argparse
import os
import shlex
from pathlib import Path

from regft_core.catalogue import KINDS
from regft_core.data.table import open_table
from regft_core.errors import ConfigError, Problem
from regft_core.fit.fitting import FOLDER, Wanted, fit_rows
from regft_core.fit.new_project import make_project
from regft_core.fit.own_rows import Asked
from regft_core.grid.refit import judged_run, refit
from regft_core.names import listing
from regft_core.runs.context import Job
from regft_core.serve.export import check_repository, push, write_submission
from regft_core.serve.export import export as export_run
from regft_core.settings.read_project import open_project

from .cli import BEGAN
from .common import FORMAT, argument, command, flag, format_of, refuse_contradictions
from .run import run_and_show

#: Of the commands that read labels: columns beside those of text and label, and how labels are read.
ROWS = (
    argument("--pair", "column of the second text, where rows are pairs"),
    argument("--group", "column whose rows stay together (product, author, premise)"),
    argument("--kind", "kind of label, where the file leaves it open", choices=KINDS.names()),
    *FORMAT,
    argument(
        "--decimal", "decimal mark of numbers in text; the other one may stand between thousands", choices=(",", ".")
    ),
)


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
        with open_table(file, format_of(arguments)) as table:
            columns = f"{table.header} names the columns: {listing(map(repr, table.names))}"
        hint = f"regft fit {shlex.quote(str(file))} --text COLUMN --label COLUMN; {columns}"
        what = "which columns hold the text and the label?"
        raise ConfigError([Problem("column-unnamed", str(file), 0, "", what, hint)])
    asked = asked_for(file, arguments)
    wanted = Wanted(here, asked, arguments.out, arguments.minutes, arguments.model, arguments.seed, BEGAN)
    taken = fit_rows(wanted, run_and_show, lambda line: print(line, flush=True))
    folder, model = os.path.relpath(wanted.place, here), os.path.relpath(taken.path, here)
    if taken.not_run:
        print(f"not run within {wanted.minutes:g} minutes: {', '.join(taken.not_run)}; more --minutes go on from there")
    print(f"report: {folder}/reports/report.html; to repeat: edit {folder}/params.yaml and call this again")
    print(f"model: {model}. Predict new texts:")
    print(f"  regft predict --model {shlex.quote(model)} --data new.csv --out predictions.csv")


def asked_for(file: Path, arguments: argparse.Namespace) -> Asked:
    columns = arguments.text, arguments.label, arguments.pair, arguments.group
    ood, texts = tuple(map(Path, getattr(arguments, "ood", ()))), getattr(arguments, "unlabelled", None)
    return Asked(file, *columns, arguments.kind, format_of(arguments), ood, texts and Path(texts))


@command(
    argument("folder", "folder to make"),
    argument("--task", "file of labelled rows: .csv, .tsv, .jsonl, .parquet or .xlsx; the main job's without it"),
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
        print(f"  cd {shlex.quote(arguments.folder)} && regft run")
    except ConfigError as error:
        print(f"  cd {shlex.quote(arguments.folder)}, mend this, then regft run:")
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


METHOD = argument("--method", "a method that params.yaml lists (pipelines/methods/METHOD.yaml)", required=True)
TASK = "--task", "a task of grid.tasks in params.yaml (pipelines/tasks/TASK.yaml)"
SIZE = "--size", "training rows of the run, one of grid.sizes: a number or full"
SEED = "--seed", "one of grid.seeds"


@command(
    METHOD,
    argument(TASK[0], f"{TASK[1]}; may be left out where there is one"),
    argument(SIZE[0], f"{SIZE[1]}; may be left out where there is one"),
    argument(SEED[0], f"{SEED[1]}; the first when left out", type=int),
    flag("--refit", "train the final model on all labelled rows, with the settings that were evaluated"),
    argument(
        "--accuracy",
        "share of right answers to guarantee, like 0.95: rows on which the model is less confident stay unanswered",
        type=float,
    ),
    flag("--register", "add a copy to MLflow's model registry, as a version of its task"),
    argument("--push", "OWNER/NAME on the Hugging Face hub: upload the folder; a new repository is private"),
    flag("--onnx", "write model.onnx, too, for onnxruntime; its logits are compared with torch's"),
)
def export(root: Path, arguments: argparse.Namespace) -> None:
    """Write one trained run as a folder that predicts.

    The folder is exports/METHOD-TASK-SIZE-seed-SEED: weights, tokenizer and model
    card in the format of Hugging Face. Its logits are those of the run. With
    --refit the method is first trained on all labelled rows.

    examples
      regft export --method lp_ft
      regft export --method lp_ft --refit
      regft export --method lp_ft --accuracy 0.95
      regft export --method lp_ft --push me/reviews

    next: regft predict --model FOLDER --data new.csv --out predictions.csv
    """
    if arguments.push:
        check_repository(arguments.push)
    named = arguments.method, arguments.task, arguments.size, arguments.seed
    job = refit(root, *named) if arguments.refit else judged_run(open_project(root), *named)
    target = export_run(job, accuracy=arguments.accuracy, onnx=arguments.onnx)
    shown = target.relative_to(root) if target.is_relative_to(root) else target
    print(f"exported to {shown}; {shown}/README.md says how to load it. Predict new texts:")
    print(f"  regft predict --model {shown} --data new.csv --out predictions.csv")
    if arguments.push:
        print(f"pushed: {push(target, arguments.push)}")
    if arguments.register:
        from regft_core.tracking import MLFLOW, sync
        from regft_core.tracking.trackers.mlflow import register

        sync(open_project(root), MLFLOW)
        tags = {"method": job.method, "task": job.task, "size": str(job.size), "seed": str(job.seed)}
        version = register(root, target, job.task, tags)
        print(f"registered as version {version} of '{job.task}' in mlflow.db; `regft ui` shows it under Model registry")


@command(
    METHOD,
    argument(*TASK, required=True),
    argument(*SIZE, required=True),
    argument(*SEED, required=True, type=int),
    argument("--out", "folder to write to; submissions/METHOD-TASK-SIZE-seed-SEED when absent"),
)
def submission(root: Path, arguments: argparse.Namespace) -> None:
    """Predict a benchmark's unlabelled test sets with one run.

    Writes submissions/METHOD-TASK-SIZE-seed-SEED with the files that the task's
    YAML names under submission.

    examples
      regft submission --method hype_n --task sst2 --size full --seed 0

    next: upload the files to the benchmark's site
    """
    job = Job(str(root), arguments.method, arguments.task, arguments.size, arguments.seed)
    for path, rows in write_submission(job, Path(arguments.out) if arguments.out else None):
        shown = path.relative_to(root) if path.is_relative_to(root) else path
        print(f"{shown}: {rows} predictions")
