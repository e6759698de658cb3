"""A copy of the run store on object storage (S3 and the like), through fsspec: what one host finished, others fetch.

``<url>/runs/<first two digits>/<key>/manifest.json`` makes a run complete there. It is written last, by a
conditional put, so of several hosts that trained one key one succeeds; the others take its run instead of
theirs. Files lie in a folder of their own for each attempt to write (``<key>/<place>/``), so attempts never mix.
Checkpoints stay on the host, and no run is ever deleted there: the budget is that of the local store, whose pruned
weights come back from here. Who only looks a run up takes all of it but its weights, which are most of its bytes:
they come when they are read.
"""

from __future__ import annotations

import json
import logging
import secrets
import shutil
from pathlib import Path
from typing import Any

from regft_core.errors import StoreError
from regft_core.io.directories import claim_directory, fsync_tree, replace_directory
from regft_core.io.write_errors import explained
from regft_core.runs.code import in_one_moment, once
from regft_core.runs.store.ledger import note_written
from regft_core.runs.store.manifest import MANIFEST, is_relative_name, problems, read_manifest
from regft_core.runs.store.stored_run import PRUNED, TENSORS_SUFFIX, USED

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
                "bad-remote", f"store.remote '{url}': {error}\n    -> install what it names, or give another place"
            ) from error
        self.root = str(root).rstrip("/")

    def _folder(self, key: str) -> str:
        return f"{self.root}/runs/{key[:2]}/{key}"

    def fetch(self, key: str, target: Path, *, tensors: bool = True) -> bool:
        """Put the complete run of ``key`` at ``target``; False when there is none.

        With its tensors it takes the place of what may be there (the caller holds the run's lock). Without them it is
        marked like a run whose tensors were pruned, and what may be there stays.
        Raises StoreError when the storage does not answer, or what it has is damaged.
        """
        if not tensors and not self._listed(key):
            return False
        manifest = self._manifest(key)
        if manifest is None:
            return False
        temporary = target.with_name(f"{target.name}.fetched-{secrets.token_hex(4)}")
        try:
            with explained(temporary):
                temporary.mkdir(parents=True)
            place, files = manifest.pop(PLACE), manifest["files"]
            wanted = {name: files[name] for name in files if tensors or not name.endswith(TENSORS_SUFFIX)}
            for name in wanted:
                path = temporary / name
                path.parent.mkdir(parents=True, exist_ok=True)
                self.asked(self.fs.get_file, f"{self._folder(key)}/{place}/{name}", str(path))
            (temporary / MANIFEST).write_text(json.dumps(manifest, sort_keys=True, indent=2) + "\n", encoding="utf-8")
            if found := problems(temporary, wanted, lambda _: True):
                raise StoreError(
                    "damaged-run", f"run {key} in {self.url} is damaged: {'; '.join(found)}; delete it there"
                )
            if len(wanted) < len(files):
                (temporary / PRUNED).write_text(json.dumps({"reason": "not fetched"}) + "\n", encoding="utf-8")
            (temporary / USED).touch()
            with explained(temporary):
                fsync_tree(temporary)
            if not claim_directory(temporary, target) and tensors:
                replace_directory(temporary, target)
        finally:
            shutil.rmtree(temporary, ignore_errors=True)
        # Else pruning would take the store for within its budget, whatever was fetched.
        sizes = [entry["bytes"] for name, entry in wanted.items() if name.endswith(TENSORS_SUFFIX)]
        note_written(target.parents[2], sum(sizes))
        return True

    def _listed(self, key: str) -> bool:
        """False where a listing says that there is nothing of ``key``.

        Only while many keys are looked up and none is computed (``one_moment``): then one request answers for all keys
        that begin with the same two digits, most of which no host has. Who computes a run asks for it by itself.
        """
        return not in_one_moment() or key in once(("remote", self.url, key[:2]), lambda: self._keys(key[:2]))

    def _keys(self, digits: str) -> frozenset[str]:
        """The keys with these first digits that any host has begun to publish."""
        self.fs.invalidate_cache()  # another process may have published since
        try:
            names = self.asked(self.fs.ls, f"{self.root}/runs/{digits}", detail=False)
        except FileNotFoundError:
            return frozenset()
        return frozenset(str(name).rstrip("/").rpartition("/")[2] for name in names)

    def publish(self, key: str, path: Path) -> bool:
        """Copy a complete run there; False when another host had completed it first. Raises StoreError."""
        place, manifest = secrets.token_hex(8), read_manifest(path)
        for name in manifest["files"]:
            content = (path / name).read_bytes()
            try:
                self.asked(self.fs.pipe_file, f"{self._folder(key)}/{place}/{name}", content)
            except FileNotFoundError as error:
                raise StoreError(
                    "remote-missing",
                    f"store.remote '{self.url}': there is no such place to write to; make the bucket, or correct its "
                    "name in params.yaml",
                ) from error
        content = json.dumps({**manifest, PLACE: place}, sort_keys=True, indent=2).encode()
        if self._completes(key, place, content):
            return True
        try:
            self.asked(self.fs.rm, f"{self._folder(key)}/{place}", recursive=True)
        except (FileNotFoundError, StoreError) as error:
            log.debug("what was discarded of run %s stays in %s: %s", key, self.url, error)  # nothing names it
        return False

    def _completes(self, key: str, place: str, content: bytes) -> bool:
        """Write the manifest if there is none; says whether the one that is there then names our ``place``."""
        try:
            # Not `open("xb")`: closed without a write it has emptied an existing object.
            self.asked(self.fs.pipe_file, f"{self._folder(key)}/{MANIFEST}", content, mode="create")
            return True
        except (FileExistsError, StoreError) as error:
            # A client that gets no answer tries again by itself, and is refused by what its first try has written.
            there = self._manifest(key)
            if there is None and isinstance(error, StoreError):
                raise
            return there is not None and there[PLACE] == place

    def _manifest(self, key: str) -> dict[str, Any] | None:
        try:
            manifest: Any = json.loads(self.asked(self.fs.cat_file, f"{self._folder(key)}/{MANIFEST}"))
            names = [*manifest["files"], manifest[PLACE]]
        except FileNotFoundError:
            return None
        except (ValueError, KeyError, TypeError) as error:
            raise StoreError(
                "damaged-run", f"run {key} in {self.url}: its manifest cannot be read; delete it there"
            ) from error
        if not all(isinstance(name, str) and is_relative_name(name) for name in names):
            raise StoreError(
                "damaged-run", f"run {key} in {self.url}: its manifest names files outside of the run; delete it there"
            )
        return dict(manifest)

    def asked(self, function: Any, *arguments: Any, **named: Any) -> Any:
        """Call a function of the storage; raises StoreError, but for what says that something is, or is not, there."""
        try:
            return function(*arguments, **named)
        except (FileNotFoundError, FileExistsError):
            raise
        except Exception as error:  # every kind of storage has its own
            raise StoreError(
                "remote-unreachable",
                f"store.remote '{self.url}': {type(error).__name__}: {error}; run again when the storage answers, "
                "what finished is kept",
            ) from error
