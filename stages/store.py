"""Finished runs on this disk, in MLflow and in other trackers; fetched data and encoders."""

from __future__ import annotations

import argparse
import sys
from pathlib import Path

from regft_core.errors import StoreError
from regft_core.grid.missing_files import fetch_all
from regft_core.models.fetch import ALIASES
from regft_core.models.fetch import fetch as fetch_encoder
from regft_core.names import gigabytes, plural
from regft_core.runs.outputs import WEIGHTS, share
from regft_core.runs.work import Work
from regft_core.settings.project import named_cells
from regft_core.settings.read_project import open_project

from .common import CHANGES, PRESET, argument, command, open_preset, refuse_contradictions, whole_number


@command(
    argument("action", "prune or share", choices=("prune", "share")),
    argument("cells", "METHOD/TASK or METHOD whose runs are shared", nargs="*"),
)
def store(root: Path, arguments: argparse.Namespace) -> None:
    """Prune or share the run store.

    prune   delete weights and checkpoints, least recently used
            first, down to store.budget_gb
    share   copy their runs to weights/ and add them to DVC. After
            `dvc push`, and `dvc pull` in a clone, `regft export` finds them

    examples
      regft store prune
      regft store share hype_n/sst2

    next: dvc push, after share
    """
    from regft_core.runs.context import project_store

    shares, names = arguments.action == "share", arguments.cells
    refuse_contradictions(
        [
            (names and not shares, "prune takes no METHOD/TASK: what was used least recently goes first"),
            (shares and not names, "share needs METHOD/TASK or METHOD"),
        ],
        "regft store prune, or regft store share METHOD/TASK",
    )
    project = open_project(root)
    store = project_store(project)
    if shares:
        from dvc.cli import main as dvc

        keys = [run.key for cell in named_cells(project, names) for run in Work(root).finetune(cell).runs if run.ok]
        new = share(root, store, keys)
        if keys and (failed := int(dvc(["--cd", str(root), "add", "-q", WEIGHTS]))):
            sys.exit(failed)
        print(f"{WEIGHTS}/: {plural(len(keys), 'run')} asked for, {new} copied. Commit {WEIGHTS}.dvc, then `dvc push`")
        return
    if store.budget_bytes is None:
        raise StoreError("no-budget", f"{store.path} has no budget\n    -> set store.budget_gb in params.yaml")
    done = store.prune()
    freed, left, budget = map(gigabytes, (done.freed_bytes, done.remaining_bytes, store.budget_bytes))
    lost = f"{plural(len(done.keys), 'run')} lost weights or checkpoints, results stay"
    print(f"{store.path}: {freed} deleted, {left} remain of {budget} allowed; {lost}")


@command(PRESET, CHANGES, argument("--encoder", "fetch this encoder alone: mpnet"))
def fetch(root: Path, arguments: argparse.Namespace) -> None:
    """Download data and encoders at their pinned revisions.

    Fetches what is missing; each file appears complete or not at all. After an
    error, run it again. Files that only you can place are listed at the end.

    examples
      regft fetch                        what params.yaml needs
      regft fetch --preset hype_table3   what a preset needs
      regft fetch --encoder mpnet        an encoder with a short name

    next: regft run, or `regft preset NAME`
    """
    encoder, preset = arguments.encoder, arguments.preset
    refuse_contradictions(
        [
            (encoder and preset, "--encoder and --preset exclude each other"),
            (arguments.set and preset is None, "--set is for --preset; edit params.yaml instead"),
        ],
        "leave one of them out",
    )
    if encoder is None:
        project = open_project(root) if preset is None else open_preset(root, preset, arguments.set)
        fetch_all(project, lambda text: print(text, flush=True))
        return
    if encoder in ALIASES:
        print(f"{encoder}: {ALIASES[encoder].title} ({ALIASES[encoder].megabytes} MB)", flush=True)
    path, downloaded = fetch_encoder(encoder, root)
    print(f"{'unpacked into' if downloaded else 'already in'} {path}")


@command()
def sync(root: Path, arguments: argparse.Namespace) -> None:
    """Log what was run to MLflow, or to the trackers of params.yaml.

    Logs the runs of work/ that mlflow.db lacks. Nothing is deleted or
    overwritten.

    examples
      regft sync

    next: regft ui
    """
    from regft_core.tracking import sync

    print(sync(open_project(root)))


@command(argument("--port", "1024 to 65535", type=whole_number(1024, 65_535), default=5000))
def ui(root: Path, arguments: argparse.Namespace) -> None:
    """Show finished runs in MLflow on this machine.

    Brings mlflow.db up to date, then serves http://127.0.0.1:PORT until it is
    interrupted.

    examples
      regft ui
      regft ui --port 5001

    next: open http://127.0.0.1:5000
    """
    from regft_core.tracking import MLFLOW, sync
    from regft_core.tracking.trackers.mlflow import opened
    from regft_core.tracking.ui import require_port, serve

    require_port(arguments.port)  # before the sync, which may take a while
    print(sync(open_project(root), MLFLOW), flush=True)
    with opened(root) as tracker:
        experiment = tracker.experiment
    serve(root, arguments.port, experiment)
