"""Stage search@<method>-<task>: the phases before fine-tuning, every size and seed."""

from __future__ import annotations

import argparse
import json
from pathlib import Path

from stages.common import run


def main(root: Path, arguments: argparse.Namespace) -> None:
    """Run the phases before fine-tuning; finished ones are taken from the run store."""
    fact = root / "work" / "facts" / f"search-{arguments.method}.json"
    if fact.is_file() and json.loads(fact.read_text(encoding="utf-8")) == {"phases": []}:
        # Most methods have no such phase: nothing that costs a second is imported for them.
        from regft_core.phases.no_search import write_nothing_to_search

        write_nothing_to_search(root, arguments.method, arguments.task)
        return
    from regft_core.phases.stages import run_search

    run_search(root, arguments.method, arguments.task)


if __name__ == "__main__":
    run(main, "method", "task")
