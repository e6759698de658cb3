"""From a finished run: a folder that predicts, and the answers to the test sets of a benchmark."""

from __future__ import annotations

import argparse
from pathlib import Path

from regft_core.grid.refit import judged_run, refit
from regft_core.runs.opened_project import Job, open_project
from regft_core.serve.export import check_repository, push, write_submission
from regft_core.serve.export import export as export_run

from .common import METHOD, SEED, SIZE, TASK, argument, command, flag


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
        from regft_core.tracking import MLFLOW, sync_project
        from regft_core.tracking.trackers.mlflow import register

        sync_project(root, MLFLOW)
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
