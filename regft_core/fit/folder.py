"""The place of a folder that ``regft fit`` makes: whether it is free, and what it was made from."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from contextlib import nullcontext
from pathlib import Path
from typing import Any

from regft_core.disk.canonical import sha256_file
from regft_core.disk.files import atomic_directory, write_json
from regft_core.disk.reading import read_json
from regft_core.errors import Problem
from regft_core.fit.project import Draft
from regft_core.fit.rows import Asked
from regft_core.fit.setup import Setup
from regft_core.models.aliases import ALIASES
from regft_core.models.source import encoder_problems
from regft_core.schema.encoder import EncoderConfig
from regft_core.settings.files import task_file

#: What a folder was made from.
RECORD = "fit.json"
#: Encoders from strong to weak that are tried without ``--model``.
ENCODERS = ("mpnet", "minilm")


def made_from(asked: Asked, minutes: float, seed: int, encoders: Sequence[str]) -> dict[str, Any]:
    """Return the inputs of a folder: the file by content, the columns, the minutes."""
    return {
        "file": str(asked.file.resolve()),
        "sha256": sha256_file(asked.file),
        "columns": asked.columns,
        "kind": asked.kind,
        "minutes": minutes,
        "seed": seed,
        "encoders": list(encoders),
        "written": asked.told,
    }


def folder_state(folder: Path, inputs: Mapping[str, Any]) -> tuple[bool, list[Problem]]:
    """Return whether the folder was made from these inputs (edited since, or not), and why it cannot be made."""

    def refused(code: str, message: str, hint: str) -> tuple[bool, list[Problem]]:
        return False, [Problem(code, str(folder), 0, "--out", message, hint)]

    if not folder.exists() or (folder.is_dir() and not any(folder.iterdir())):
        return False, []
    if not (folder / RECORD).is_file():
        hint = "choose another folder with --out, or move it away"
        return refused("in-the-way", "is there, and regft fit did not make it", hint)
    record = read_json(folder / RECORD)
    if record["from"] == inputs:
        return True, []
    if record["from"]["file"] != inputs["file"]:
        hint = "choose another folder with --out, so that the model of that file stays"
        return refused("in-the-way", f"was made from another file, {record['from']['file']}", hint)
    if edited := [name for name, sha256 in record["wrote"].items() if _sha256(folder / name) != sha256]:
        other = [key for key, value in inputs.items() if record["from"].get(key) != value]
        message = f"{', '.join(edited)} was edited, and this call differs from the first in {', '.join(other)}"
        return refused("edited", message, "run `dvc repro` there, or give another folder with --out")
    return False, []


def write_folder(draft: Draft, folder: Path, setup: Setup, inputs: Mapping[str, Any]) -> None:
    """Write the project of a set-up, and what it was made from; a new folder is there complete or not at all."""
    # Links and the encoder's path are relative; an atomic directory is made on the level of its target.
    with nullcontext(folder) if (folder / RECORD).is_file() else atomic_directory(folder) as place:
        draft.write(place, setup)
        wrote = {name: _sha256(place / name) for name in ("params.yaml", task_file(draft.task))}
        write_json(place / RECORD, {"from": inputs, "task": draft.task, "wrote": wrote})


def _sha256(path: Path) -> str | None:
    return sha256_file(path) if path.is_file() else None


def encoders_here(root: Path, name: str | None) -> tuple[list[str], list[Problem]]:
    """Return the encoders of this disk, the strongest first, or the one that was asked for; else what is wrong."""
    problems = {one: encoder_problems(EncoderConfig(name=one), root) for one in (ENCODERS if name is None else (name,))}
    if here := [one for one, wrong in problems.items() if not wrong]:
        return here, []
    return [], [
        Problem(code, "--model", 0, one, message.partition("\n")[0], ALIASES[one].advice if one in ALIASES else "")
        for one, wrong in problems.items()
        for _, code, message in wrong[:1]
    ]
