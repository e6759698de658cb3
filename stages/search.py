"""Stage search@<method>-<task>: the phases before fine-tuning, every size and seed."""

from __future__ import annotations

import argparse
import json
from pathlib import Path

from stages.common import METHOD, TASK, run


def main(root: Path, arguments: argparse.Namespace) -> None:
    """Write work/search/METHOD/TASK for every size and seed; finished phases come from the run store."""
    facts = root / "work" / "facts"
    fact, task = facts / f"search-{arguments.method}.json", facts / f"task-{arguments.task}.json"
    if task.is_file() and fact.is_file() and json.loads(fact.read_text(encoding="utf-8")) == {"phases": []}:
        # Most methods have no such phase: nothing that costs a second is imported for them.
        from regft_core.phases.no_search import write_nothing_to_search

        write_nothing_to_search(root, arguments.method, arguments.task)
        return
    from regft_core.phases.stages import run_search

    run_search(root, arguments.method, arguments.task)


if __name__ == "__main__":
    run(main, METHOD, TASK)
