"""Ids that must mean a dataset on the Hugging Face hub, and nothing on this disk."""

from __future__ import annotations

import os
from pathlib import Path


def shadow_problem(hub_id: str, folder: Path) -> tuple[str, str] | None:
    """(message, hint) when the library that reads the hub would not look there for ``hub_id``.

    ``datasets`` prefers a file or folder of that name where it runs, and takes a word without an
    owner (csv, text) for one of its own readers, which collects files from there.
    """
    if "/" not in hub_id:
        return f"'{hub_id}' names no owner, so it could mean something else than a dataset on the hub", (
            "give the whole id, owner/name, for instance nyu-mll/glue"
        )
    if os.path.lexists(folder / hub_id):
        return f"the project has a folder or file '{hub_id}', which would be read in place of the hub", (
            f"rename or move '{hub_id}' ({(folder / hub_id).absolute()}), or read it with source: {{kind: files}}"
        )
    return None
