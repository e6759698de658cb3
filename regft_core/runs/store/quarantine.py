"""Damaged runs set aside: ``<key>.damaged-<n>`` beside the run that is trained in their place."""

from __future__ import annotations

import logging
import os
import re
from contextlib import suppress
from pathlib import Path

from regft_core.errors import StoreError
from regft_core.io.files import fsync_directory
from regft_core.io.write_errors import explained
from regft_core.runs.store.killpoints import killpoint
from regft_core.runs.store.manifest import read_manifest
from regft_core.runs.store.stored_run import TENSORS_SUFFIX

log = logging.getLogger(__name__)

#: Name of a run that was set aside: its key and a number.
ASIDE = re.compile(r"(?P<key>[0-9a-f]{64})\.damaged-(?P<number>[1-9]\d*)")


def quarantined(target: Path) -> list[Path]:
    """Return where damaged runs of ``target``'s key were set aside, the oldest first."""
    found = []
    with suppress(FileNotFoundError), os.scandir(target.parent) as entries:  # hundreds, of which few have the key
        for entry in entries:
            if entry.name.startswith(target.name) and (match := ASIDE.fullmatch(entry.name)):
                found.append((int(match["number"]), Path(entry.path)))
    return [path for _, path in sorted(found)]


def put_in_quarantine(target: Path, reason: str) -> Path:
    """Rename the run's directory and say so in a warning; returns the new path.

    The caller holds the run's lock. Raises ``StoreError`` when the directory cannot be renamed.
    """
    earlier = quarantined(target)
    number = int(earlier[-1].name.rpartition("-")[2]) + 1 if earlier else 1
    aside = target.with_name(f"{target.name}.damaged-{number}")
    with explained(target):
        target.rename(aside)
        killpoint("aside.renamed")
        fsync_directory(target.parent)
    log.warning(
        "run %s is damaged: %s. It was set aside as %s and is trained again when it is needed; "
        "delete that directory, or leave it to the store's budget",
        target.name,
        reason,
        aside,
    )
    return aside


def recorded_hashes(target: Path) -> dict[str, str]:
    """Return the tensor hashes of the run that was set aside last, by name; empty when none are known.

    Only a manifest that survived is used, so a hash may stand for weights that are lost.
    """
    for path in reversed(quarantined(target)):
        try:
            manifest = read_manifest(path)
        except (StoreError, ValueError):
            continue
        if manifest.get("key") == target.name:
            return {
                name.removesuffix(TENSORS_SUFFIX): entry["sha256"]
                for name, entry in manifest["files"].items()
                if name.endswith(TENSORS_SUFFIX)
            }
    return {}
