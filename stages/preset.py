"""Run a preset in a folder of its own.

Runs pipelines/presets/NAME.yaml in presets/NAME. params.yaml and work/ are
left alone; runs go to the project's store. A second call runs what is stale,
and an interrupted one continues. execution and store are those of params.yaml
unless the preset has its own.

examples
  regft preset                             list the presets
  regft preset hype_table3 --plan          data, encoder, hours
  regft fetch --preset hype_table3         download data and encoder
  regft preset hype_table3                 run it
  regft preset hype_table3 --scale small   a trial of minutes, marked as such
  regft preset hype_table3 --set model.name=minilm --set 'grid.seeds=[0, 1]'

next: open presets/hype_table3/reports/report.html
"""

from __future__ import annotations

import argparse
import shlex
import sys
from pathlib import Path
from textwrap import fill

from regft_core.grid.fetch import needs_text, require_named_sets
from regft_core.grid.keys import grid_rows
from regft_core.grid.repro import repro
from regft_core.grid.time import estimate, gpu_line
from regft_core.runs.project import open_project
from regft_core.settings.preset import FOLDER, lay_out, preset_data, preset_file, preset_names
from regft_core.settings.project import Project
from regft_core.settings.small import lay_out_small

from .common import CHANGES, COLUMNS, argument, flag, open_preset, run


def main(root: Path, arguments: argparse.Namespace) -> None:
    """Lay out the preset and run `dvc repro` in its folder."""
    if arguments.name is None:
        print(listed(root))
        return
    open_preset(root, arguments.name, arguments.set)  # a mistake is reported with the preset's own lines
    lay = lay_out_small if arguments.scale == "small" else lay_out
    folder = lay(root, arguments.name, arguments.set)
    project = open_project(folder)
    if arguments.plan:
        changes, rows = [part for change in arguments.set for part in ("--set", change)], grid_rows(project)
        if (mark := project.params.small_scale) is not None:
            print(mark.mark)
            changes += ["--scale", "small"]
        print(gpu_line(project, rows), estimate(project, rows).line(), sep="\n")
        print(needs_text(project, shlex.join([arguments.name, *changes])))
        return
    require_named_sets(project)  # before DVC, whose own words would stand around the error
    _announce(root, folder, project, arguments.name)
    if done := repro(folder):
        sys.exit(done)
    print(f"report: {folder.relative_to(root)}/reports/report.html")


def listed(root: Path) -> str:
    """Every preset with the first line of its file, which says what it makes."""
    lines = []
    for name in preset_names(root):
        head = (root / preset_file(root, name)).read_text(encoding="utf-8").partition("\n")[0]
        text = f"  {name}: {head.lstrip('# ')}" if head.startswith("#") else f"  {name}"
        lines.append(fill(text, COLUMNS, subsequent_indent="    ", break_on_hyphens=False))
    return "\n".join([*lines, "what one needs: regft preset NAME --plan"])


def _announce(root: Path, folder: Path, project: Project, name: str) -> None:
    """Say where it runs, and what differs from the preset's own file."""
    here, mark = folder.relative_to(root), project.params.small_scale
    if mark is not None:
        print(mark.mark)
    else:
        old, new = preset_data(root, name)["model"], project.params.model
        if old["name"] != new.name and "revision" in old:
            print(f"encoder: {new.name} in place of {old['name']}, whose revision goes with it")
    for task, sets in project.left_out.items():
        print(f"{task} is not evaluated on {', '.join(f'{judge} ({one.why})' for judge, one in sets.items())}")
    print(f"preset {name} runs in {here}; the dry run: cd {here} && regft plan", flush=True)


if __name__ == "__main__":
    run(
        main,
        argument("name", f"a preset; it runs in {FOLDER}/NAME. Without it: the list", nargs="?"),
        CHANGES,
        flag("--plan", "show what the preset needs and what of it is missing; run nothing"),
        argument(
            "--scale",
            "full; or small: a few rows, seeds and steps on the packaged encoder, in presets/NAME.small, marked "
            "everywhere as not the paper's experiment",
            default="full",
            choices=("full", "small"),
        ),
    )
