"""Verify or prune the run store.

verify  hash every file again; exits with 6 when one is damaged
prune   delete weights and checkpoints, least recently used first, down to
        store.budget_gb

examples
  regft store verify
  regft store prune

next: regft run
"""

from __future__ import annotations

import argparse
from pathlib import Path

from regft_core.errors import StoreError
from regft_core.names import gigabytes, plural
from regft_core.runs.project import open_project
from regft_core.runs.store import RunStore

from .common import argument, run


def main(root: Path, arguments: argparse.Namespace) -> None:
    """Verify or prune the runs."""
    from regft_core.runs.context import project_store

    project = open_project(root)
    store = project_store(project)
    if arguments.action == "prune":
        _prune(store)
        return
    damaged = store.verify()
    print(f"{store.path}: {plural(len(list(store.keys())), 'run')}, {len(damaged)} damaged", flush=True)
    wrong = [f"{path}: {problem}" for path, problem in damaged]
    if wrong:
        what_next = "-> delete the folders that are named and run `dvc repro`: what they held is computed again"
        raise StoreError(
            "store-problems", "\n  ".join([f"{plural(len(wrong), 'problem')} in {store.path}", *wrong, what_next])
        )


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


if __name__ == "__main__":
    run(
        main,
        argument("action", "verify or prune", choices=("verify", "prune")),
    )
