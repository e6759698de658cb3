"""Run a preset in a folder of its own (not a DVC stage): params.yaml and work/ are left alone.

python -m stages.preset hype_table3
python -m stages.preset hype_table3 --set model.name=minilm --set 'grid.seeds=[0, 1]'
"""

from __future__ import annotations

import argparse
import os
import subprocess
import sys
from pathlib import Path

from regft_core.config.preset import FOLDER, lay_out, preset_file
from regft_core.run.project import open_project
from stages.common import Argument, run


def main(root: Path, arguments: argparse.Namespace) -> None:
    """Check pipelines/presets/NAME.yaml, lay out presets/NAME and run it there, over the project's run store.

    That is `dvc repro` in that folder. A second call runs what is stale; a killed one goes on. execution and
    store are those of params.yaml unless the preset has its own.
    """
    if not arguments.set:
        open_project(root, preset_file(root, arguments.name))  # a mistake is said with the preset's own lines
    folder = lay_out(root, arguments.name, arguments.set)
    open_project(folder)
    here = folder.relative_to(root)
    print(
        f"preset {arguments.name} runs in {here}; the dry run: python -m stages.config plan --root {here}",
        flush=True,
    )
    done = subprocess.run([sys.executable, "-m", "dvc", "repro"], cwd=folder, env=environment(root), check=False)
    if done.returncode:
        sys.exit(done.returncode)
    print(f"report: {here}/reports/report.html")


def environment(root: Path) -> dict[str, str]:
    """That of this process, with this Python and this project's code first for the commands of the stages."""
    python, code = str(Path(sys.executable).parent), str(root.resolve())
    given = os.environ.get("PYTHONPATH")
    return os.environ | {
        "PATH": os.pathsep.join([python, os.environ.get("PATH", "")]),
        "PYTHONPATH": os.pathsep.join([code, *([given] if given else [])]),
    }


if __name__ == "__main__":
    run(
        main,
        Argument("name", f"a preset of pipelines/presets; it runs in {FOLDER}/NAME", positional=True),
        Argument(
            "set",
            "KEY=VALUE: a dotted key and a YAML value that replaces the preset's; may be repeated",
            required=False,
            repeated=True,
        ),
    )
