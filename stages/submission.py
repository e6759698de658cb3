"""Predict a benchmark's unlabelled test sets with one run.

Writes submissions/METHOD-TASK-SIZE-seed-SEED with the files that the task's
YAML names under submission.

examples
  regft submission --method hype_n --task sst2 --size full --seed 0

next: upload the files to the benchmark's site
"""

from __future__ import annotations

import argparse
from pathlib import Path

from regft_core.runs.job import Job
from regft_core.serve.submission import write_submission

from .common import METHOD, SEED, SIZE, TASK, argument, run


def main(root: Path, arguments: argparse.Namespace) -> None:
    """Write the files of a submission."""
    job = Job(str(root), arguments.method, arguments.task, arguments.size, arguments.seed)
    for path, rows in write_submission(job, Path(arguments.out) if arguments.out else None):
        shown = path.relative_to(root) if path.is_relative_to(root) else path
        print(f"{shown}: {rows} predictions")


if __name__ == "__main__":
    run(
        main,
        METHOD,
        argument(*TASK, required=True),
        argument(*SIZE, required=True),
        argument(*SEED, required=True, type=int),
        argument("--out", "folder to write to; submissions/METHOD-TASK-SIZE-seed-SEED when absent"),
    )
