"""Adds an exported model to MLflow's registry, when somebody asks for it."""

from __future__ import annotations

import shutil
from pathlib import Path

from regft_core.io.canonical import sha256_file, sha256_text
from regft_core.io.directories import atomic_directory
from regft_core.tracking.database import is_active, locked, open_mirror
from regft_core.tracking.reading import DIGEST, read_exports


def register(root: Path, folder: Path, task: str, tags: dict[str, str], experiment: str = "regft") -> int:
    """Register a copy of the export ``folder`` as a version of the model ``task``; returns its number.

    The copy is below ``mlartifacts/models``: a later export to the same folder leaves it as it is. A folder with the
    same content keeps its version. Sync first: the version then names the run in MLflow that was exported.

    Args:
        root: project root.
        tags: of the version.

    Raises:
        StoreError: the database cannot be written, or the copy.
    """
    root, folder = root.resolve(), folder.resolve()
    database, artifacts = root / "mlflow.db", root / "mlartifacts"
    files = sorted(path for path in folder.rglob("*") if path.is_file())
    hashes = [f"{path.relative_to(folder).as_posix()} {sha256_file(path)}" for path in files]
    content = sha256_text("\n".join(hashes))[:DIGEST]
    exported = {path: key for key, path in read_exports(root).items()}
    key = exported.get(folder.relative_to(root).as_posix() if folder.is_relative_to(root) else "", "")
    with locked(database), open_mirror(database, artifacts, experiment) as mirror:
        client = mirror.client
        if not client.search_registered_models(f"name = '{task}'"):
            client.create_registered_model(task, description=f"Exported models of the task {task}.")
        for version in client.search_model_versions(f"name = '{task}'"):
            if version.tags.get("regft.content") == content:
                return int(version.version)
        copy = artifacts / "models" / task / content
        with atomic_directory(copy) as target:
            shutil.copytree(folder, target, dirs_exist_ok=True)
        wanted = {"regft.key": key, **tags}.items()  # methods that amount to the same share a key
        runs = [run.info.run_id for run in mirror.runs() if key and wanted <= run.data.tags.items() and is_active(run)]
        known = {**tags, "regft.content": content, "regft.export": folder.name} | ({"regft.key": key} if key else {})
        card = folder / "README.md"
        text = card.read_text(encoding="utf-8") if card.is_file() else ""
        described = text.split("\n---\n", 1)[-1].strip()  # without the card's metadata
        made = client.create_model_version(
            task, copy.as_uri(), run_id=runs[0] if runs else None, tags=known, description=described[:5000]
        )
    return int(made.version)
