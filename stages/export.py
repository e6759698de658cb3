"""Write one fine-tuned run as a Hugging Face directory (not a DVC stage).

python -m stages.export --method hype_n --task sst2 --size 300 --seed 0
"""

from __future__ import annotations

import argparse
from pathlib import Path

from regft_core.phases.context import Job
from regft_core.phases.export import export
from stages.common import run


def main(root: Path, arguments: argparse.Namespace) -> None:
    """Export one run to exports/<method>-<task>-<size>-seed-<seed>."""
    job = Job(str(root), arguments.method, arguments.task, arguments.size, int(arguments.seed))
    target = export(job)
    print(f"exported to {target}; use it with transformers' pipeline('text-classification', model='{target}')")


if __name__ == "__main__":
    run(main, "method", "task", "size", "seed")
