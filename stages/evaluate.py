"""Stage evaluate@<method>-<task>: every size and seed on dev and on every OOD set."""

from __future__ import annotations

import argparse
from pathlib import Path

from regft_core.phases.ready import take_ready
from stages.common import METHOD, TASK, run


def main(root: Path, arguments: argparse.Namespace) -> None:
    """Write work/evaluate/METHOD/TASK (scores, predictions per example) and work/metrics/METHOD/TASK.json."""
    if take_ready(root, "evaluate", arguments.method, arguments.task):
        return  # made by `python -m stages.fill`: nothing that costs a second is imported
    from regft_core.phases.stages import run_evaluate

    run_evaluate(root, arguments.method, arguments.task)


if __name__ == "__main__":
    run(main, METHOD, TASK)
