"""Checkpoints of one run that is being trained: ``checkpoint-<number>/`` in its ``.partial`` directory."""

from __future__ import annotations

import json
import logging
import re
import shutil
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from regft_core.errors import StoreError
from regft_core.io.canonical import canonical_json
from regft_core.io.files import explained, fsync_directory, remove, write_json
from regft_core.io.reading import Unreadable, read_json
from regft_core.io.tensors import read_tensors, write_tensors
from regft_core.runs.store.stored_run import MANIFEST, TENSORS_SUFFIX, manifest_of, problems, read_manifest

if TYPE_CHECKING:
    from torch import Tensor

log = logging.getLogger(__name__)

TENSORS, META = f"tensors{TENSORS_SUFFIX}", "meta.json"
#: Two, so that a checkpoint damaged by the disk costs one interval and not the run.
CHECKPOINTS_KEPT = 2
_CHECKPOINT = re.compile(r"checkpoint-(\d{6,})")


class Checkpoints:
    """The checkpoints of ``key`` in ``directory``; the caller holds the run's lock.

    ``environment`` is stored with them and must be the same to continue one; None asks nothing.
    """

    def __init__(self, key: str, directory: Path, environment: Mapping[str, Any] | None) -> None:
        self.key = key
        self.directory = directory
        self.environment = None if environment is None else json.loads(canonical_json(environment))

    def _numbered(self) -> list[tuple[int, Path]]:
        """Number and path of each checkpoint, the oldest first."""
        if not self.directory.is_dir():
            return []
        paths = [(_CHECKPOINT.fullmatch(path.name), path) for path in self.directory.iterdir()]
        return sorted((int(match[1]), path) for match, path in paths if match)

    def clean(self) -> None:
        """Remove whatever is not a checkpoint: the run's lock is ours, so it belongs to a process that is gone."""
        if self.directory.is_dir():
            with explained(self.directory):
                for entry in list(self.directory.iterdir()):
                    if not _CHECKPOINT.fullmatch(entry.name):
                        remove(entry)

    def discard(self) -> None:
        """Remove all checkpoints; raises ``StoreError``."""
        with explained(self.directory):
            for _, path in self._numbered():
                shutil.rmtree(path)

    def save(self, tensors: Mapping[str, Tensor], meta: Mapping[str, Any]) -> None:
        """See ``WorkingRun.save_checkpoint``."""
        existing = self._numbered()
        number = existing[-1][0] + 1 if existing else 1
        target = self.directory / f"checkpoint-{number:06d}"
        temporary = self.directory / f"{target.name}.unfinished"
        try:
            with explained(temporary):
                temporary.mkdir(parents=True)
            write_tensors(temporary / TENSORS, tensors)
            write_json(temporary / META, meta)
            write_json(temporary / MANIFEST, manifest_of(temporary, key=self.key, environment=self.environment))
            self._publish(temporary, target)
        except BaseException:
            shutil.rmtree(temporary, ignore_errors=True)
            raise
        with explained(self.directory):
            for _, path in [*existing, (number, target)][:-CHECKPOINTS_KEPT]:
                shutil.rmtree(path)

    def _publish(self, temporary: Path, target: Path) -> None:
        with explained(target):
            fsync_directory(temporary)
            temporary.rename(target)
            fsync_directory(self.directory)

    def load(self, device: str) -> tuple[dict[str, Tensor], dict[str, Any]] | None:
        """See ``WorkingRun.load_checkpoint``."""
        for _, path in reversed(self._numbered()):
            try:
                made_in = self._verified_environment(path)
                if self.environment is None or canonical_json(made_in) == canonical_json(self.environment):
                    return read_tensors(path / TENSORS, device), read_json(path / META, dict)
            except Unreadable:
                raise
            except (StoreError, ValueError, OSError) as error:
                log.warning("run %s: %s is damaged (%s); using the one before it", self.key[:12], path.name, error)
                with explained(path):
                    shutil.rmtree(path)
                continue
            log.warning(
                "run %s: %s was made in another environment (%s), on which the bits of a result may depend: "
                "the checkpoints are deleted and the run starts afresh",
                self.key[:12],
                path.name,
                _difference(made_in, self.environment),
            )
            self.discard()
            return None
        return None

    def _verified_environment(self, path: Path) -> Any:
        """Compare a checkpoint with its manifest; returns the environment recorded there, None for none."""
        manifest = read_manifest(path)
        if manifest.get("key") != self.key:
            raise ValueError("it belongs to another run")
        if set(manifest["files"]) != {TENSORS, META}:
            raise ValueError("its manifest lists other files than a checkpoint has")
        if changed := problems(path, manifest["files"]):
            raise ValueError("; ".join(changed))
        return manifest.get("environment")


def _difference(made_in: Any, here: Mapping[str, Any]) -> str:
    if not isinstance(made_in, dict):
        return "it does not record which"
    return "; ".join(
        f"{name}: {made_in.get(name)!r} then, {here.get(name)!r} now"
        for name in sorted({*made_in, *here})
        if (name in made_in, made_in.get(name)) != (name in here, here.get(name))
    )
