"""The place of a folder that ``regft fit`` makes: whether it is free, what it was made from, how it gets there."""

from __future__ import annotations

import os
import shutil
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from regft_core.errors import Problem
from regft_core.fit.project import Draft
from regft_core.fit.rows import Asked
from regft_core.fit.setup import Setup
from regft_core.io.canonical import sha256_file
from regft_core.io.files import remove, write_json
from regft_core.io.reading import read_json
from regft_core.models.aliases import ALIASES
from regft_core.models.source import encoder_problems
from regft_core.schema.encoder import EncoderConfig
from regft_core.settings.files import TASKS, task_file

#: What a folder was made from.
RECORD = "fit.json"
#: Encoders from strong to weak that are tried without ``--model``.
ENCODERS = ("mpnet", "minilm")


def made_from(asked: Asked, minutes: float, seed: int, encoders: Sequence[str]) -> dict[str, Any]:
    """Inputs of a folder: the file by content, the columns, the minutes."""
    return {
        "file": str(asked.file.resolve()),
        "sha256": sha256_file(asked.file),
        "columns": asked.columns,
        "kind": asked.kind,
        "minutes": minutes,
        "seed": seed,
        "encoders": list(encoders),
        **({"written": asked.told} if asked.told else {}),
    }


def folder_state(folder: Path, wanted: Mapping[str, Any]) -> tuple[str, list[Problem]]:
    """``new``, ``same`` (made from the same, edited or not), ``stale`` (from something else, unedited), or problems."""
    if not folder.exists() or (folder.is_dir() and not any(folder.iterdir())):
        return "new", []
    record = read_json(folder / RECORD) if (folder / RECORD).is_file() else None
    if record is None:
        hint = "choose another folder with --out, or move it away"
        return "", [Problem("in-the-way", str(folder), 0, "--out", "is there, and regft fit did not make it", hint)]
    if record["from"] == wanted:
        return "same", []
    if record["from"]["file"] != wanted["file"]:
        message = f"was made from another file, {record['from']['file']}"
        hint = "choose another folder with --out, so that the model of that file stays"
        return "", [Problem("in-the-way", str(folder), 0, "--out", message, hint)]
    edited = [
        name
        for name, sha256 in record["wrote"].items()
        if not (folder / name).is_file() or sha256_file(folder / name) != sha256
    ]
    if not edited:
        return "stale", []
    other = [key for key, value in wanted.items() if record["from"].get(key) != value]
    message = f"{', '.join(edited)} was edited, and this call differs from the first in {', '.join(other)}"
    hint = "run `dvc repro` there, or give another folder with --out"
    return "", [Problem("edited", str(folder), 0, "--out", message, hint)]


@contextmanager
def beside(folder: Path) -> Iterator[Path]:
    """A folder to make ``folder`` in, on the same level, so that its links hold when it is renamed."""
    partial = folder.with_name(f".{folder.name}.partial-{os.getpid()}")
    remove(partial)
    made = [path for path in partial.parents if not path.exists()]
    partial.parent.mkdir(parents=True, exist_ok=True)
    try:
        yield partial
    finally:
        remove(partial)
        for path in made:
            if not any(path.iterdir()):
                path.rmdir()


def put(draft: Draft, folder: Path, setup: Setup) -> None:
    """Write the set-up and move the draft to its place; over an older one only what was made anew."""
    draft.write(setup)
    files = "params.yaml", task_file(draft.task)
    wrote = {file: sha256_file(draft.folder / file) for file in files}
    source = made_from(draft.asked, draft.minutes, draft.seed, draft.encoders)
    write_json(draft.folder / RECORD, {"from": source, "task": draft.task, "wrote": wrote})
    if folder.is_dir() and any(folder.iterdir()):
        for path in sorted((folder / TASKS).glob("*.yaml")):
            remove(path)  # of another name of the file
        for file in ("params.yaml", task_file(draft.task), f"data/{draft.asked.file.name}", RECORD):
            shutil.copyfile(draft.folder / file, folder / file)
        return
    if folder.is_dir():
        folder.rmdir()
    draft.folder.rename(folder)


def encoders_here(root: Path, given: str | None) -> tuple[list[str], list[Problem]]:
    """Encoders of this disk, the strongest first, or the one that was asked for."""
    names = ENCODERS if given is None else (given,)
    found = {name: encoder_problems(EncoderConfig(name=name), root) for name in names}
    here = [name for name, problems in found.items() if not problems]
    if here:
        return here, []
    return [], [
        Problem(code, "--model", 0, name, message.partition("\n")[0], ALIASES[name].advice if name in ALIASES else "")
        for name, problems in found.items()
        for _, code, message in problems[:1]
    ]
