"""Stage finetune@<method>-<task>: every size and seed."""

from __future__ import annotations

import argparse
from pathlib import Path

from regft_core.phases.ready import take_ready
from stages.common import METHOD, TASK, run


def main(root: Path, arguments: argparse.Namespace) -> None:
    """Write work/finetune/METHOD/TASK; finished runs come from the run store, killed ones continue."""
    if take_ready(root, "finetune", arguments.method, arguments.task):
        return  # made by `python -m stages.fill`: nothing that costs a second is imported
    from regft_core.phases.stages import run_finetune

    run_finetune(root, arguments.method, arguments.task)


if __name__ == "__main__":
    run(main, METHOD, TASK)
