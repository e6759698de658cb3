"""Stage search@<method>-<task>: the phases before fine-tuning, every size and seed."""

from __future__ import annotations

import argparse
from pathlib import Path

from regft_core.phases.no_search import skip_search
from regft_core.phases.ready import take_ready
from stages.common import METHOD, TASK, run


def main(root: Path, arguments: argparse.Namespace) -> None:
    """Write work/search/METHOD/TASK for every size and seed; finished phases come from the run store."""
    if skip_search(root, arguments.method, arguments.task):
        return  # most methods: nothing that costs a second is imported for them
    if take_ready(root, "search", arguments.method, arguments.task):
        return  # made by `python -m stages.fill`
    from regft_core.phases.stages import run_search

    run_search(root, arguments.method, arguments.task)


if __name__ == "__main__":
    run(main, METHOD, TASK)
