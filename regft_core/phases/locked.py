"""Which stages are up to date, as the lock files that DVC wrote have it; no DVC is imported.

Only what is surely up to date is said to be: DVC itself decides in the end, and whoever asks here merely saves
the work that DVC would find done.
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import yaml

#: Stage -> the lock file that it is in.
FILES = {
    **dict.fromkeys(("dataset", "subsample", "lengths"), "dvc.lock"),
    **{stage: f"pipelines/{stage}/dvc.lock" for stage in ("search", "finetune", "evaluate")},
}


class Locked:
    """The lock files of a project as they are now."""

    def __init__(self, root: Path) -> None:
        self.root = root
        self._files: dict[str, dict[str, Any]] = {}
        self._hashes: dict[str, str | None] = {}

    def _stage(self, stage: str, name: str) -> Mapping[str, Any] | None:
        """The entry of ``stage@name``; None when there is none."""
        file = FILES[stage]
        if file not in self._files:
            try:
                content = yaml.load((self.root / file).read_bytes(), Loader=_LOADER)
                self._files[file] = dict(content["stages"])
            except (OSError, yaml.YAMLError, TypeError, KeyError):
                self._files[file] = {}
        found = self._files[file].get(f"{stage}@{name}")
        return found if isinstance(found, dict) else None

    def _made(self, stage: str, name: str, path: str) -> str | None:
        """Hash of an output as the lock has it."""
        return _hashes(self._stage(stage, name), "outs").get(path)

    def _file(self, path: str) -> str | None:
        """Hash of a file as it is."""
        if path not in self._hashes:
            try:
                content = (self.root / path).read_bytes()
                self._hashes[path] = hashlib.md5(content, usedforsecurity=False).hexdigest()
            except OSError:
                self._hashes[path] = None
        return self._hashes[path]

    def _current(self, stage: str, name: str, wanted: Mapping[str, str | None]) -> bool:
        """Whether a stage ran with these inputs, all known, and with no others."""
        return None not in wanted.values() and _hashes(self._stage(stage, name), "deps") == wanted

    def data(self, task: str) -> bool:
        """Whether dataset, subsamples and lengths of a task are up to date, and there."""
        rows = f"work/datasets/{task}"
        made = self._made("dataset", task, rows)
        outs = (rows, f"work/subsamples/{task}", f"work/lengths/{task}.json")
        fact = f"work/facts/task-{task}.json"
        return (
            all((self.root / out).exists() for out in outs)
            and self._current("dataset", task, {fact: self._file(fact)})
            and all(
                self._current(stage, task, {rows: made, path: self._file(path)})
                for stage, path in (("subsample", "work/facts/subsample.json"), ("lengths", "work/facts/lengths.json"))
            )
        )

    def runs(self, method: str, task: str) -> bool:
        """Whether search, finetune and evaluate of a method on a task are up to date, the task's data being so."""
        name, subsample, rows = f"{method}-{task}", f"work/subsamples/{task}", f"work/datasets/{task}"
        drawn = self._made("subsample", task, subsample)
        searched, trained = f"work/search/{method}/{task}", f"work/finetune/{method}/{task}"
        facts = {stage: f"work/facts/{stage}-{method}.json" for stage in ("search", "finetune")}
        facts["evaluate"] = "work/facts/evaluate.json"
        settings = f"work/facts/settings-{method}-{task}.json"
        given = {subsample: drawn, settings: self._file(settings)}
        inputs: dict[str, dict[str, str | None]] = {
            "search": given,
            "finetune": {**given, searched: self._made("search", name, searched)},
            "evaluate": {
                rows: self._made("dataset", task, rows),
                trained: self._made("finetune", name, trained),
            },
        }
        return all(
            self._current(stage, name, {**inputs[stage], path: self._file(path)}) for stage, path in facts.items()
        )


#: The one in C where there is one: with hundreds of cells the lock files have tens of thousands of lines.
_LOADER = getattr(yaml, "CSafeLoader", yaml.SafeLoader)


def _hashes(entry: Mapping[str, Any] | None, part: str) -> dict[str, str | None]:
    """Path -> hash of the inputs or outputs of a stage."""
    listed = (entry or {}).get(part) or []
    return {item["path"]: item.get("md5") for item in listed if isinstance(item, dict) and "path" in item}
