"""A copy of the run store on object storage (S3 and the like), through fsspec: what one host finished, others fetch.

``<url>/runs/<first two digits>/<key>/manifest.json`` makes a run complete there. It is written last, by a
conditional put, so of several hosts that trained one key one succeeds; the others take its run in the place of
theirs. Files lie in a folder of their own for each attempt to write (``<key>/<place>/``), so attempts never mix.
Checkpoints and pins stay on the host, and nothing is ever deleted there: the budget is that of the local store,
whose pruned weights come back from here.
"""

from __future__ import annotations

import json
import logging
import secrets
import shutil
from pathlib import Path
from typing import Any

from regft_core.errors import StoreError
from regft_core.io import claim_directory, explained, fsync_tree, replace_directory
from regft_core.runs.manifest import MANIFEST, is_relative_name, problems, read_manifest
from regft_core.runs.stored import USED

log = logging.getLogger(__name__)

#: In the manifest there, but not here: the folder of the attempt that succeeded.
PLACE = "place"


class Remote:
    """Complete runs under ``url``, for instance ``s3://bucket/regft``.

    Raises StoreError when the package for this kind of storage is not installed.
    """

    def __init__(self, url: str) -> None:
        self.url = url
        import fsspec

        try:
            # A folder as storage makes its folders only when told to.
            options = {"auto_mkdir": True} if url.startswith(("file:", "local:")) else {}
            self.fs, root = fsspec.core.url_to_fs(url, **options)
        except (ImportError, ValueError) as error:
            raise StoreError(
                f"store.remote '{url}': {error}\n    -> install what it names, or give another place"
            ) from error
        self.root = str(root).rstrip("/")

    def _folder(self, key: str) -> str:
        return f"{self.root}/runs/{key[:2]}/{key}"

    def fetch(self, key: str, target: Path) -> bool:
        """Put the complete run of ``key`` at ``target``, in the place of what may be there; False when there is none.

        Raises StoreError when the storage does not answer, or what it has is damaged.
        """
        manifest = self._manifest(key)
        if manifest is None:
            return False
        temporary = target.with_name(f"{target.name}.fetched-{secrets.token_hex(4)}")
        try:
            with explained(temporary):
                temporary.mkdir(parents=True)
            place = manifest.pop(PLACE)
            for name in manifest["files"]:
                path = temporary / name
                path.parent.mkdir(parents=True, exist_ok=True)
                self.asked(self.fs.get_file, f"{self._folder(key)}/{place}/{name}", str(path))
            (temporary / MANIFEST).write_text(json.dumps(manifest, sort_keys=True, indent=2) + "\n", encoding="utf-8")
            if found := problems(temporary, manifest["files"], lambda _: True):
                raise StoreError(f"run {key} in {self.url} is damaged: {'; '.join(found)}; delete it there")
            (temporary / USED).touch()
            with explained(temporary):
                fsync_tree(temporary)
            if not claim_directory(temporary, target):
                replace_directory(temporary, target)
        finally:
            shutil.rmtree(temporary, ignore_errors=True)
        return True

    def publish(self, key: str, path: Path) -> bool:
        """Copy a complete run there; False when another host had completed it first. Raises StoreError."""
        place, manifest = secrets.token_hex(8), read_manifest(path)
        for name in manifest["files"]:
            self.asked(self.fs.pipe_file, f"{self._folder(key)}/{place}/{name}", (path / name).read_bytes())
        content = json.dumps({**manifest, PLACE: place}, sort_keys=True, indent=2).encode()
        try:
            # Not `open("xb")`: closed without a write it has emptied an existing object.
            self.asked(self.fs.pipe_file, f"{self._folder(key)}/{MANIFEST}", content, mode="create")
        except FileExistsError:
            self.asked(self.fs.rm, f"{self._folder(key)}/{place}", recursive=True)
            return False
        return True

    def _manifest(self, key: str) -> dict[str, Any] | None:
        try:
            manifest: Any = json.loads(self.asked(self.fs.cat_file, f"{self._folder(key)}/{MANIFEST}"))
            names = [*manifest["files"], manifest[PLACE]]
        except FileNotFoundError:
            return None
        except (ValueError, KeyError, TypeError) as error:
            raise StoreError(f"run {key} in {self.url}: its manifest cannot be read; delete it there") from error
        if not all(isinstance(name, str) and is_relative_name(name) for name in names):
            raise StoreError(f"run {key} in {self.url}: its manifest names files outside of the run; delete it there")
        return dict(manifest)

    def asked(self, function: Any, *arguments: Any, **named: Any) -> Any:
        """Call a function of the storage; raises StoreError, but for what says that something is, or is not, there."""
        try:
            return function(*arguments, **named)
        except (FileNotFoundError, FileExistsError):
            raise
        except Exception as error:  # every kind of storage has its own
            raise StoreError(
                f"store.remote '{self.url}': {type(error).__name__}: {error}; run again when the storage answers, "
                "what finished is kept"
            ) from error
