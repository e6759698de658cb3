"""The folder of ``regft fit``, made once: complete or not at all, and never over what a person edited.

``fit.json`` in it records what it was made from.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from contextlib import nullcontext
from pathlib import Path
from typing import Any

from regft_core.disk.canonical import sha256_file, sha256_json
from regft_core.disk.files import atomic_directory, write_json, write_text
from regft_core.disk.reading import read_json
from regft_core.errors import ConfigError, Problem
from regft_core.fit.draft import Draft
from regft_core.names import listing
from regft_core.settings.document import edited
from regft_core.settings.preset import COPIED
from regft_core.settings.yaml_paths import task_file

#: What a folder was made from.
RECORD = "fit.json"


def make_folder_once(draft: Draft, folder: Path) -> list[str]:
    """Make the folder of a draft, or leave it as it is where the same call made it; return lines on it.

    Raises ConfigError for minutes that are too few, and for a folder that is not to be written over.
    """
    inputs = {
        "file": str(draft.asked.file.resolve()),
        "sha256": sha256_file(draft.asked.file),
        "columns": draft.asked.columns,
        "kind": draft.asked.kind,
        "minutes": draft.minutes,
        "seed": draft.seed,
        "encoders": list(draft.encoders),
        "written": draft.asked.how.model_dump(),
        "ood": {one.name: sha256_file(one.file) for one in draft.elsewhere},
        "unlabelled": draft.asked.unlabelled and sha256_file(draft.asked.unlabelled),
        "preset": sha256_json(draft.preset.model_dump(mode="json")),
    }
    is_made = (folder / RECORD).is_file()
    record = read_json(folder / RECORD) if is_made else {"from": {}, "wrote": {}}
    before = {"sha256": None, "ood": {}, "unlabelled": None, "preset": inputs["preset"]} | record["from"]
    if before == inputs:
        return [f"{folder} is there; going on with it"]
    old: dict[str, str] = record["wrote"]  # of rows ``from`` knows what they were
    rows = {None, before["sha256"], *before["ood"].values(), before["unlabelled"], *map(sha256_file, draft.asked.files)}
    edited = [name for name, sha256 in old.items() if _sha256(folder / name) != sha256]
    edited += [f"data/{file.name}" for file in draft.asked.files if _sha256(folder / "data" / file.name) not in rows]
    if edited:
        changed = [key for key, value in inputs.items() if before.get(key) != value]
        message = f"{listing(edited)} was edited, and this call differs from the first in {listing(changed)}"
        hint = "run `dvc repro` there, which reads the rows in its data/: copy new ones there; or give another --out"
        raise ConfigError([Problem("edited", str(folder), 0, "--out", message, hint)])
    setup, seconds, after, more = draft.chosen()
    # A new folder is there complete or not at all. Its links and the encoder's path are relative; an atomic directory
    # is made on the level of its target.
    with nullcontext(folder) if is_made else atomic_directory(folder) as place:
        draft.write(place, setup)
        made = "params.yaml", task_file(draft.task), *COPIED, ".dvc/config"
        wrote = {name: _sha256(place / name) for name in made}
        for name in old.keys() - wrote.keys():
            (place / name).unlink()  # the task of another name of the file
        record = {"from": inputs, "task": draft.task, "wrote": wrote, "reserve": math.ceil(after)}
        write_json(place / RECORD, record)
    return draft.described(setup, seconds, more)


def leave_out(folder: Path, methods: Sequence[str], seeds: Sequence[int] = ()) -> list[str]:
    """Take methods out of ``params.yaml``; return what ``report.not_run`` names from then on.

    With ``seeds``, those of the first repeat of the folds, only these stay.
    """
    not_run = ["the second repeat of the folds"] * bool(seeds) + list(methods)
    file, record = folder / "params.yaml", read_json(folder / RECORD)

    def change(params: Any) -> None:
        if seeds:
            params["grid"]["seeds"] = list(seeds)
        params["methods"] = [name for name in params["methods"] if name not in methods]
        tuned = (params.get("tuning") or {}).get("methods") or {}
        for section in (tuned, params.get("method_settings") or {}):
            for name in methods:
                section.pop(name, None)
        if "tuning" in params and not any(tuned.values()):
            del params["tuning"]
        report = {**(params.get("report") or {}), "not_run": not_run}
        if preferred := report.pop("prefer", ()):
            if left := [name for name in preferred if name in params["methods"]]:
                report["prefer"] = left
            elif not record["from"].get("ood"):  # within which other texts decide
                report["tolerance"] = 0.0  # nothing that takes steps is left: nothing is given up for fewer passes
        params["report"] = report

    as_written = _sha256(file) == record["wrote"][file.name]
    write_text(file, edited(file, change))
    if as_written:  # else it is the user's own, and stays so
        record["wrote"][file.name] = _sha256(file)
        write_json(folder / RECORD, record)
    return not_run


def _sha256(path: Path) -> str | None:
    return sha256_file(path) if path.is_file() else None


def refusal(folder: Path, file: Path) -> Problem | None:
    """Return why a folder cannot be made from ``file``: it is in use, or of another file."""
    if not folder.exists() or (folder.is_dir() and not any(folder.iterdir())):
        return None
    message = "is there, and regft fit did not make it"
    if (folder / RECORD).is_file():
        made_from = read_json(folder / RECORD)["from"]["file"]
        if made_from == str(file.resolve()):
            return None
        message = f"was made from {made_from}"
    return Problem("in-the-way", str(folder), 0, "--out", message, "choose another folder with --out, or move it away")
