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

from regft_core.runs.project import open_project
from regft_core.settings.controls import with_controls, write_controls
from regft_core.settings.preset import preset_file

from .common import PRESET, flag, run


def main(root: Path, arguments: argparse.Namespace) -> None:
    """Print each missing control, or add them to the params file."""
    params_file = "params.yaml" if arguments.preset is None else preset_file(root, arguments.preset)
    found = open_project(root, params_file).controls
    if not found.missing:
        pairs = ", ".join(f"{method} ({control})" for method, control in found.present)
        listed = f"every control that is declared for a listed method is listed: {pairs}"
        print(listed if pairs else "no listed method has a declared control")
    elif not arguments.write:
        print("\n".join(map(str, found.missing)))
        print("Add them under methods, or run `regft controls --write`.")
    else:
        # The controls' own files were not checked so far: nothing lists them. Check before writing.
        text = (root / params_file).read_bytes().decode("utf-8-sig")
        open_project(root, params_file, with_controls(text, found.missing, params_file))
        write_controls(root, found.missing, params_file)
        print(f"added to {params_file}:")
        print("\n".join(f"  {control.name} ({control.kind} for {control.control_for})" for control in found.missing))


if __name__ == "__main__":
    run(main, flag("--write", "add them to the params file"), PRESET)
