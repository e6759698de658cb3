"""Stage facts: everything that determines the other stages and that DVC does not see."""

from __future__ import annotations

import argparse
from pathlib import Path

from regft_core.phases.facts import write_facts
from regft_core.phases.project import open_project
from stages.common import run


def main(root: Path, arguments: argparse.Namespace) -> None:
    """Write work/facts/*.json; files whose content stays the same are not touched."""
    write_facts(open_project(root))


if __name__ == "__main__":
    run(main)
