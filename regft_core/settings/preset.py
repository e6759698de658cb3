"""Presets: whole ``params.yaml`` files that run in a folder of their own, ``presets/<name>``.

The user's ``params.yaml`` and ``work/`` are left alone. The folder is a small DVC project: tasks, methods, data and
fetched encoders are links to the project's, the pipeline files are copies, and the run store is the project's own, so
that equal runs are trained once.
"""

from __future__ import annotations

import os
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import yaml

from regft_core import shipped
from regft_core.catalogue import OWN
from regft_core.disk.files import write_text
from regft_core.errors import ConfigError, Problem
from regft_core.models.aliases import ALIASES
from regft_core.names import suggestion
from regft_core.settings.document import load_yaml, relative_name
from regft_core.settings.files import CONTAMINATION, FOLDERS, PRESETS, find, names, read

#: Where presets run; git and the project's own DVC ignore it.
FOLDER = "presets"
#: Files that DVC reads and follows; it follows no links.
COPIED = ("dvc.yaml", ".dvcignore")
LINKED = (*FOLDERS, CONTAMINATION, "data", *OWN)
#: What is fetched: linked, and made where it is missing, so that a fetch from a preset's folder fills the project's.
FETCHED = (".models", ".datasets")
#: Sections that say where and how to run: taken from the user's ``params.yaml`` where a preset has none.
OF_THE_MACHINE = ("execution", "store")


def preset_names(root: Path) -> list[str]:
    """Every preset that there is."""
    return names(root, PRESETS)


def preset_file(root: Path, name: str) -> str:
    """The file of a preset: relative to the project that has it, else the whole path of the shipped one.

    Raises ConfigError with the nearest name.
    """
    path = find(root, PRESETS, name)
    if path is None:
        hint = suggestion(name, preset_names(root), "presets there")
        raise _wrong("unknown-preset", f"{PRESETS}/{name}.yaml", "", f"unknown preset '{name}': no such file", hint)
    return relative_name(path, root)


def preset_data(root: Path, name: str, changes: Iterable[str] = ()) -> dict[str, Any]:
    """A preset with ``KEY=VALUE`` changes, as it would stand in the project's own folder.

    Raises ConfigError: no such preset, or a change that cannot be made.
    """
    file = preset_file(root, name)
    document = read(root, PRESETS, name)
    assert document is not None
    return changed(dict(document.data), changes, file)


def changed(data: dict[str, Any], changes: Iterable[str], file: str) -> dict[str, Any]:
    """``data`` with ``KEY=VALUE`` changes; the key is dotted, the value YAML.

    Another ``model.name`` is that of every task, and takes the revision away, whichever comes first.

    Raises ConfigError for a change that cannot be made; ``file`` is where ``data`` is from.
    """

    def names_encoder(change: str) -> bool:
        return change.partition("=")[0].strip() == "model.name"

    for change in sorted(changes, key=lambda text: not names_encoder(text)):
        if names_encoder(change):
            data = without_encoder(data)
        data = _changed(data, change, file)
    return data


def without_encoder(data: dict[str, Any]) -> dict[str, Any]:
    """Return ``data`` without the encoders that it and its tasks name."""
    changed = dict(data)
    if isinstance(model := data.get("model"), dict):
        changed["model"] = {key: value for key, value in model.items() if key not in ("name", "revision")}
    if isinstance(tasks := data.get("task_settings"), dict):
        changed["task_settings"] = {
            task: without_encoder(own) if isinstance(own, dict) else own for task, own in tasks.items()
        }
    return changed


def preset_text(root: Path, name: str, changes: Iterable[str] = ()) -> str:
    """The ``params.yaml`` of a preset's folder: the preset with ``KEY=VALUE`` changes and this machine's sections.

    Raises ConfigError as ``preset_data``.
    """
    head = f"# Made from {preset_file(root, name)} by `regft preset {name}`; an edit here is lost.\n"
    return head + folder_text(root, preset_data(root, name, changes))


def of_the_machine(root: Path) -> dict[str, Any]:
    """The sections of the user's ``params.yaml`` that say where and how to run."""
    own = load_yaml(root / "params.yaml", root).data if (root / "params.yaml").is_file() else {}
    return {section: own[section] for section in OF_THE_MACHINE if section in own}


def folder_text(root: Path, data: dict[str, Any]) -> str:
    """The YAML of ``data`` in a folder two below the project, with this machine's sections."""
    data = data | {name: value for name, value in of_the_machine(root).items() if name not in data}
    store = _mapping(data.get("store"))
    data["store"] = {**store, "path": _seen_from_folder(str(store.get("path", ".regft")))}

    data = with_moved_encoders(root, data)
    return yaml.safe_dump(data, sort_keys=False, allow_unicode=True, default_flow_style=None, width=110)


def with_moved_encoders(root: Path, data: Any) -> Any:
    """Return settings whose sections ``model``, at any depth, name local encoders as a preset sees them."""
    if not isinstance(data, dict):
        return data
    moved = {key: with_moved_encoders(root, value) for key, value in data.items()}
    if isinstance(model := moved.get("model"), dict):
        name = str(model.get("name", ""))
        if name and name not in ALIASES and (root / name).is_dir():
            moved["model"] = {**model, "name": _seen_from_folder(name)}
    return moved


def lay_out(root: Path, name: str, changes: Iterable[str] = ()) -> Path:
    """Make (or bring up to date) the folder of a preset; returns it.

    Raises ConfigError as ``preset_text``, or when something else lies in the folder's place.
    """
    return make_folder(root, root / FOLDER / name, preset_text(root, name, changes))


def make_folder(root: Path, folder: Path, text: str, linked: Iterable[str] = LINKED) -> Path:
    """Make (or bring up to date) ``folder`` with ``params.yaml`` of this ``text``; returns it."""
    for file in COPIED:
        own = root / file
        write_changed(folder / file, (own if own.is_file() else shipped.PROJECT[file]).read_text(encoding="utf-8"))
    for file in FETCHED:
        (root / file).mkdir(exist_ok=True)
    for file in (*linked, *FETCHED):
        link(folder / file, root / file)
    write_changed(folder / "params.yaml", text)
    write_changed(folder / ".dvc" / "config", "[core]\n    analytics = false\n    no_scm = true\n")
    return folder


def _changed(data: dict[str, Any], change: str, file: str) -> dict[str, Any]:
    """``data`` with one ``KEY=VALUE``; the key is dotted, the value YAML."""
    key, sign, text = change.partition("=")
    path = key.strip().split(".")
    if not sign or not all(path):
        hint = "write for instance --set grid.seeds=[0,1]"
        raise _wrong("not-key-value", file, key, f"'{change}' is not KEY=VALUE", hint)
    try:
        value = load_yaml(Path(f"--set {key}"), Path(), f"value: {text.strip()}").data["value"]
    except ConfigError as error:
        raise _wrong("not-yaml", file, key, f"'{text}' is not YAML: {error.problems[0].message}", "quote it") from error
    found = dict(data)
    at = found
    for part in path[:-1]:
        below = at.get(part)
        if below is not None and not isinstance(below, dict):
            message = f"'{part}' is not a mapping, so '{key}' cannot be set"
            raise _wrong("not-a-mapping", file, key, message, "check the key")
        at[part] = dict(below or {})
        at = at[part]
    at[path[-1]] = value
    return found


def _wrong(code: str, file: str, key: str, message: str, hint: str) -> ConfigError:
    return ConfigError([Problem(code, file, 0, key, message, hint)])


def _mapping(value: Any) -> dict[str, Any]:
    return value if isinstance(value, dict) else {}


def _seen_from_folder(path: str) -> str:
    """A path relative to the project, as it is from ``presets/<name>``."""
    return path if path.startswith("~") or os.path.isabs(path) else os.path.join("..", "..", path)


def write_changed(path: Path, text: str) -> None:
    """Write a file whose content is another, so that DVC and people see what changed."""
    if not (path.is_file() and path.read_text(encoding="utf-8") == text):
        path.parent.mkdir(parents=True, exist_ok=True)
        write_text(path, text)


def link(path: Path, target: Path) -> None:
    """Make ``path`` a link to ``target`` if that is there; raises ConfigError where something else is in the way."""
    relative = os.path.relpath(target, path.parent)
    if path.is_symlink():
        if os.readlink(path) == relative:
            return
        path.unlink()
    elif path.exists():
        message = "is in the way of a link to the project's own"
        raise ConfigError([Problem("in-the-way", str(path), 0, "", message, "move it away")])
    if target.exists():
        path.parent.mkdir(parents=True, exist_ok=True)
        path.symlink_to(relative)
