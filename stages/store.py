"""What is kept on this disk: finished runs, fetched data and encoders."""

from __future__ import annotations

import argparse
from pathlib import Path

from regft_core.errors import StoreError
from regft_core.grid.missing_files import fetch_all
from regft_core.models.fetch import ALIASES
from regft_core.models.fetch import fetch as fetch_encoder
from regft_core.names import gigabytes, plural
from regft_core.runs.opened_project import named_cells, open_project
from regft_core.runs.outputs import WEIGHTS, share
from regft_core.runs.store import RunStore
from regft_core.runs.work import Work
from regft_core.settings.project import Project

from .common import CHANGES, PRESET, argument, command, open_preset, refuse_contradictions


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

    prunes, named = arguments.action == "prune", bool(arguments.cells)
    refuse_contradictions(
        [
            (prunes and named, "prune takes no METHOD/TASK: what was used least recently goes first"),
            (not prunes and not named, "share needs METHOD/TASK or METHOD"),
        ],
        "regft store prune, or regft store share METHOD/TASK",
    )
    project = open_project(root)
    store = project_store(project)
    if prunes:
        _prune(store)
    else:
        _share(project, store, arguments.cells)


def _share(project: Project, store: RunStore, names: list[str]) -> None:
    """Copy the runs of these cells to weights/, and `dvc add` it; raises ConfigError for names that are not listed."""
    from dvc.cli import main as dvc

    keys = [run.key for cell in named_cells(project, names) for run in Work(project.root).finetune(cell).runs if run.ok]
    new = share(project.root, store, keys)
    if keys and (done := int(dvc(["--cd", str(project.root), "add", "-q", WEIGHTS]))):
        raise SystemExit(done)
    print(f"{WEIGHTS}/: {plural(len(keys), 'run')} asked for, {new} copied. Commit {WEIGHTS}.dvc, then `dvc push`")


def _prune(store: RunStore) -> None:
    """Prune the store to its budget, and say what went; raises StoreError for a store without a budget."""
    if store.budget_bytes is None:
        raise StoreError("no-budget", f"{store.path} has no budget\n    -> set store.budget_gb in params.yaml")
    done = store.prune()
    freed, left, budget = map(gigabytes, (done.freed_bytes, done.remaining_bytes, store.budget_bytes))
    print(
        f"{store.path}: {freed} deleted, {left} remain of {budget} allowed; {plural(len(done.keys), 'run')} "
        "lost weights or checkpoints, results stay"
    )


@command(
    PRESET,
    CHANGES,
    argument("--encoder", "fetch this encoder alone: mpnet"),
)
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
