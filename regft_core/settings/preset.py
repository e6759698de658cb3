"""Presets: whole ``params.yaml`` files that run in a folder of their own, ``presets/<name>``.

The folder is a small DVC project: tasks, methods, data and fetched encoders are links to the project's, the pipeline
files are copies, and the run store is the project's own.

``--scale small`` makes a preset in miniature, in ``presets/<name>.small``. ``small_scale`` in the new file says what
differs, cuts the files of methods and tasks likewise (``in_small``), and marks every result.
"""

from __future__ import annotations

import copy
import os
from collections.abc import Iterable, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

from regft_core import shipped
from regft_core.catalogue import OWN
from regft_core.disk.files import write_text
from regft_core.errors import ConfigError, Problem
from regft_core.models.fetch import ALIASES
from regft_core.models.source import layers_of
from regft_core.names import plural
from regft_core.schema.params import Params
from regft_core.schema.training import EncoderConfig
from regft_core.settings.document import Document, Place, load_yaml, relative_name, yaml_text
from regft_core.settings.yaml_paths import CONTAMINATION, FOLDERS, PRESETS, find, missing, read

#: Where presets run; git and the project's own DVC ignore it.
FOLDER = "presets"
#: Files that DVC reads and follows; it follows no links.
COPIED = ("dvc.yaml", ".dvcignore")
LINKED = (*FOLDERS, CONTAMINATION, "data", *OWN)
#: What is fetched: linked, and made where it is missing, so that a fetch from a preset's folder fills the project's.
FETCHED = (".models", ".datasets")
#: Sections that say where and how to run: taken from the user's ``params.yaml`` where a preset has none.
OF_THE_MACHINE = ("execution", "store")
#: Of a preset in small: end of its folder's name, and its encoder.
SUFFIX = ".small"
ENCODER = "minilm"
#: Rows of each set, and of the largest size; a further size of the preset is half of it.
ROWS = 32
SEEDS = [0, 1]
#: Whole numbers by the name of their key, wherever it stands: at most this.
CAPS = {
    **{"max_steps": 4, "epochs": 1, "warmup_steps": 1, "batch_size": 8, "times": 2, "trials": 2, "size": ROWS},
    **{"max_length": 64, "windows": 2, "stride": 16, "bootstrap_samples": 400},
}
#: Changes of the command line that would undo cuts: they are made before the cuts alone.
_BEFORE_ONLY = ("grid.sizes", "task_settings")


def preset_file(root: Path, name: str) -> str:
    """The file of a preset, relative to the project that has it, or the shipped one's path. Raises ConfigError."""
    path = find(root, PRESETS, name)
    if path is None:
        raise ConfigError([missing(root, PRESETS, name, Document({}, {}, f"{PRESETS}/{name}.yaml"), ())])
    return relative_name(path, root)


def preset_document(root: Path, name: str, changes: Iterable[str] = ()) -> Document:
    """A preset with ``KEY=VALUE`` changes, as it would stand in the project's own folder. Raises ConfigError."""
    preset_file(root, name)
    document = read(root, PRESETS, name)
    assert document is not None
    return changed(document, changes)


def changed(document: Document, changes: Iterable[str]) -> Document:
    """``document`` with ``KEY=VALUE`` changes; another ``model.name`` comes first and is that of every task."""
    for change in sorted(changes, key=lambda text: text.partition("=")[0].strip() != "model.name"):
        key, sign, text = change.partition("=")
        path = tuple(key.strip().split("."))
        if not sign or not all(path):
            hint = "write for instance --set grid.seeds=[0,1]"
            raise ConfigError([Problem("not-key-value", f"--set {change}", 0, "", "is not KEY=VALUE", hint)])
        value = load_yaml(Path(f"--set {key}"), Path(), f"value: {text.strip()}").data["value"]
        data = copy.deepcopy(document.data if path != ("model", "name") else without_encoder(document.data))
        put(data, path, value, document)
        kept = {other: place for other, place in document.places.items() if other[: len(path)] != path}
        made = {path[:end]: Place(f"--set {change}", 0, path[:end]) for end in range(1, len(path) + 1)}
        document = Document(data, made | kept, document.file)
    return document


def put(data: Any, path: tuple[str, ...], value: Any, document: Document) -> None:
    """Set the value at ``path`` of the data of ``document``, or of a copy; lacking sections are made."""
    for part in path[:-1]:
        if data.get(part) is None:
            data[part] = {}
        data = data[part]
        if not isinstance(data, dict):
            message = f"'{part}' is not a mapping, so '{'.'.join(path)}' cannot be set"
            raise ConfigError([document.problem("not-a-mapping", path, message, "check the key")])
        if name := getattr(getattr(data, "anchor", None), "value", None):  # one object at several paths
            message = f"'{part}' has the YAML anchor &{name}: its aliases would change, too"
            raise ConfigError([document.problem("shared-value", path, message, "write the alias out")])
    data[path[-1]] = value


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


def of_the_machine(root: Path) -> dict[str, Any]:
    """The sections of the user's ``params.yaml`` that say where and how to run."""
    own = load_yaml(root / "params.yaml", root).data if (root / "params.yaml").is_file() else {}
    return {section: own[section] for section in OF_THE_MACHINE if section in own}


def folder_text(root: Path, data: dict[str, Any]) -> str:
    """The YAML of ``data`` in a folder two below the project, with this machine's sections."""
    data = data | {name: value for name, value in of_the_machine(root).items() if name not in data}
    store = data.get("store") or {}
    data["store"] = {**store, "path": _seen_from_folder(str(store.get("path", ".regft")))}
    return yaml_text(with_moved_encoders(root, data))


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
    """Make (or bring up to date) the folder of a preset with ``KEY=VALUE`` changes; returns it. Raises ConfigError."""
    head = f"# Made from {preset_file(root, name)} by `regft preset {name}`; an edit here is lost.\n"
    return make_folder(root, root / FOLDER / name, head + folder_text(root, preset_document(root, name, changes).data))


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


def _seen_from_folder(path: str) -> str:
    """A path relative to the project, as it is from ``presets/<name>``."""
    return path if path.startswith("~") or os.path.isabs(path) else os.path.join("..", "..", path)


def write_changed(path: Path, text: str) -> None:
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


def lay_out_small(root: Path, name: str, changes: Iterable[str] = ()) -> Path:
    """Make (or bring up to date) the folder of a preset in small; returns it. ``changes`` win over the cuts."""
    changes, file, printed = list(changes), preset_file(root, name), preset_document(root, name).data
    wanted = preset_document(root, name, changes).data
    original = printed["model"]["name"]
    encoder = ENCODER if wanted["model"]["name"] == original else wanted["model"]["name"]
    if encoder not in ALIASES and not (root / encoder).is_dir():
        message = f"'{encoder}' is not an encoder on this disk, and --scale small fetches none"
        hint = f"give an alias ({', '.join(ALIASES)}) or a directory, or leave it out"
        raise ConfigError([Problem("model-missing", file, 0, "model.name", message, hint)])
    depth = layers_of(EncoderConfig(name=encoder), root) / (24 if "large" in original else 12)
    after = [change for change in changes if not change.startswith(_BEFORE_ONLY)]
    data = changed(Document(shrunk(wanted, depth, encoder), {}, file), after).data
    data["small_scale"] = {"preset": name, "rows": ROWS, "depth": depth, "changes": _differences(printed, data)}
    head = f"# Made from {file} by `regft preset {name} --scale small`; an edit here is lost.\n"
    return make_folder(root, root / FOLDER / f"{name}{SUFFIX}", head + folder_text(root, data))


def in_small(file: Document, params: Params) -> Document:
    """Return the file of a method or a task as ``small_scale`` of ``params`` cuts it, if there is such a section."""
    if params.small_scale is None or params.small_scale.cut:
        return file
    return replace(file, data=capped(file.data, params.small_scale.depth, encoder=params.model.name))


def shrunk(data: Mapping[str, Any], scale: float, encoder: str) -> dict[str, Any]:
    """Return the data of a preset in small, with ``encoder`` in every phase; ``scale``: its layers over the paper's."""
    small: dict[str, Any] = capped(data, scale, encoder=encoder)
    small["grid"] |= {"seeds": SEEDS}
    for section in (small["grid"], *(small.get("task_settings") or {}).values()):
        if "sizes" in section:
            section["sizes"] = [ROWS // 2, ROWS][-len(section["sizes"]) :]
    if tuning := small.get("tuning"):
        tuning["methods"] = {name: _two_trials(trials) for name, trials in (tuning.get("methods") or {}).items()}
        tuning["values"] = _two_trials(tuning.get("values") or {})
    return small


def _two_trials(grid: Any) -> Any:
    """Return two trials of a grid: two values of its first key, one of each other; of a list its first two."""
    if isinstance(grid, list):
        return grid[:2]
    return {key: values[: 1 if i else 2] for i, (key, values) in enumerate(grid.items())}


def capped(value: Any, scale: float, key: str = "", encoder: str = "") -> Any:
    """Return ``value`` with its numbers cut, layers times ``scale``, and ``encoder`` for those that it names."""
    if isinstance(value, Mapping):
        cut = {name: capped(inner, scale, name, encoder) for name, inner in value.items()}
        named = encoder and key == "model" and "name" in cut
        return {name: inner for name, inner in cut.items() if name != "revision"} | {"name": encoder} if named else cut
    if key == "layers" and isinstance(value, list) and value and min(value) >= 0:
        return sorted({int(layer * scale) for layer in value})
    if key in CAPS and isinstance(value, int) and not isinstance(value, bool):
        return min(value, CAPS[key])
    return [capped(inner, scale, encoder=encoder) for inner in value] if isinstance(value, list) else value


def _differences(printed: Mapping[str, Any], data: Mapping[str, Any]) -> list[str]:
    seeds, full = (plural(len(grid["seeds"]), "seed") for grid in (data["grid"], printed["grid"]))
    own, theirs = data["model"]["name"], printed["model"]["name"]
    epochs = (data.get("training") or {}).get("epochs", CAPS["epochs"])
    tokens = data["model"].get("max_length", CAPS["max_length"])
    return [
        f"Encoder {own} in every phase" + (f", in place of {theirs}." if own != theirs else "."),
        f"At most {ROWS} rows of each set, {seeds} (the preset: {full}), at most {plural(epochs, 'epoch')} of each "
        f"phase (longer in controls of matched compute), two tuning trials and {tokens} tokens of each input.",
    ]
