"""Look after the run store (not a DVC stage).

regft store verify
regft store verify --recompute 5
regft store rekey
regft store prune
"""

from __future__ import annotations

import argparse
import random
from pathlib import Path

from regft_core.errors import ConfigError, Problem, StoreError
from regft_core.names import gigabytes, plural
from regft_core.runs.store.run_store import RunStore
from regft_core.settings.project import Project

from .common import Argument, run, whole_number

ACTIONS = ("verify", "rekey", "prune")


def action(text: str) -> str:
    """What to do, for ``Argument.kind``."""
    if text not in ACTIONS:
        raise argparse.ArgumentTypeError(f"'{text}' is not an action; there are: {', '.join(ACTIONS)}")
    return text


def main(root: Path, arguments: argparse.Namespace) -> None:
    """Look after the run store: verify, rekey or prune.

    verify hashes every file again; with --recompute it computes some runs again, from the project as it is now, and
    compares all bits. It ends with 6 when a file is damaged or bits differ.

    rekey gives runs of an earlier release the keys of this one, where this release declares their code as unchanged.
    The others are counted with the reason, and `regft run` trains them. Nothing is deleted. It reads the rows that the
    stage plan has prepared.

    prune deletes weights, checkpoints and kept vectors, least recently used first, down to store.budget_gb.
    """
    from regft_core.runs.context import project_store
    from regft_core.runs.project import open_project

    project = open_project(root)
    store = project_store(project)
    if arguments.action != "verify" and arguments.recompute is not None:
        hint = "leave one of them out"
        raise ConfigError(
            [Problem("contradicting-arguments", "command line", 0, "", "--recompute is for verify", hint)]
        )
    if arguments.action == "prune":
        _prune(store)
        return
    if arguments.action == "rekey":
        _rekey(project, store)
        return
    damaged = store.verify()
    print(f"{store.path}: {plural(len(list(store.keys())), 'run')}, {len(damaged)} damaged", flush=True)
    wrong = [f"{damage.path}: {damage.problem}" for damage in damaged]
    if arguments.recompute:
        from regft_core.grid.executors import visible_devices
        from regft_core.grid.failures import torch_threads
        from regft_core.grid.pool import prepared_devices
        from regft_core.runs.recompute import recompute

        device = visible_devices(prepared_devices(project)[0])[0]
        with torch_threads(project.params.execution.threads):
            found = recompute(project, store, arguments.recompute, device, random.Random())
        total = len(found.same) + len(found.different) + len(found.not_compared)
        print(f"computed again: {total}, of which {len(found.same)} with all bits as they were stored")
        for name in found.same:
            print(f"  same: {name}")
        for name, why in found.not_compared.items():
            print(f"  not compared: {name}: {why}")
        for why, number in found.foreign.items():
            print(f"  not made by this project: {plural(number, 'run')}: {why}")
        wrong += [f"{store.directory(key)}: {what} differ" for key, what in found.different.items()]
    if wrong:
        what_next = "-> delete the folders that are named and run `dvc repro`: what they held is computed again"
        raise StoreError(
            "store-problems", "\n  ".join([f"{plural(len(wrong), 'problem')} in {store.path}", *wrong, what_next])
        )


def _rekey(project: Project, store: RunStore) -> None:
    from regft_core.runs.rekey import rekey

    found = rekey(project, store)
    print(f"{store.path}: {plural(len(found.runs), 'run')} of earlier releases rekeyed")
    for name in found.runs:
        print(f"  {name}")
    for why, number in found.unproven.most_common():
        print(f"  to be trained: {plural(number, 'run')}: {why}")


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
        Argument("action", "verify, rekey or prune", kind=action, positional=True),
        Argument("recompute", "how many randomly chosen runs to compute again", required=False, kind=whole_number),
    )
