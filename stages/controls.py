"""List the controls that the listed methods lack, or add them.

Prints each missing control or replacement with what it differs in. With
--write they are added to params.yaml.

examples
  regft controls
  regft controls --write

next: regft plan
"""

from __future__ import annotations

import argparse
from pathlib import Path

from regft_core.disk.files import write_text
from regft_core.runs.project import open_project
from regft_core.settings.controls import missing, with_controls
from regft_core.settings.preset import preset_file

from .common import PRESET, flag, run


def main(root: Path, arguments: argparse.Namespace) -> None:
    """Print each missing control, or add them to the params file."""
    params_file = "params.yaml" if arguments.preset is None else preset_file(root, arguments.preset)
    controls = open_project(root, params_file).controls
    names = missing(controls)
    if not names:
        pairs = ", ".join(f"{one.control_for} ({one.name})" for one in controls)
        listed = f"every control that is declared for a listed method is listed: {pairs}"
        print(listed if pairs else "no listed method has a declared control")
    elif not arguments.write:
        print("\n".join(str(one) for one in controls if not one.listed))
        print("Add them under methods, or run `regft controls --write`.")
    else:
        path = (root / params_file).resolve()  # a linked file stays a link
        text = with_controls(path.read_bytes().decode("utf-8-sig"), names, params_file)
        open_project(root, params_file, text)  # the controls' own files were not checked so far: nothing lists them
        write_text(path, text)
        print(f"added to {params_file}:")
        print("\n".join(f"  {one.name} ({one.kind} for {one.control_for})" for one in controls if not one.listed))


if __name__ == "__main__":
    run(main, flag("--write", "add them to the params file"), PRESET)
