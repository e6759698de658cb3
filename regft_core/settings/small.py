"""``--scale small``: a preset in miniature, in ``presets/<name>.small``, at a tenth of a minute per run on a laptop.

The preset's ``params.yaml`` with less of everything that takes time: the packaged encoder, few rows of each set, two
seeds, short trainings. Layer numbers are scaled to the encoder's depth. ``small_scale`` in the new file says what
differs, cuts the files of methods and tasks likewise (``in_small``), and marks every result.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

from regft_core.errors import ConfigError, Problem
from regft_core.models.fetch import ALIASES
from regft_core.models.source import layers_of
from regft_core.names import plural
from regft_core.schema.params import Params
from regft_core.schema.training import EncoderConfig
from regft_core.settings.document import Document
from regft_core.settings.preset import (
    FOLDER,
    changed,
    folder_text,
    make_folder,
    preset_document,
    preset_file,
    without_encoder,
)

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


def lay_out_small(root: Path, name: str, changes: Iterable[str] = ()) -> Path:
    """Make (or bring up to date) the folder of a preset in small; returns it.

    ``changes`` are made before the preset is cut, and once more after, so that they win over the cuts.

    Raises ConfigError for a preset or changes that are wrong.
    """
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
    small = without_encoder(small)
    return {**small, "model": {**small["model"], "name": encoder}}


def _two_trials(grid: Any) -> Any:
    """Return two trials of a grid: two values of its first key, one of each other; of a list its first two."""
    if isinstance(grid, list):
        return grid[:2]
    return {key: values[: 1 if i else 2] for i, (key, values) in enumerate(grid.items())}


def capped(value: Any, scale: float, key: str = "", encoder: str = "") -> Any:
    """Return ``value`` with its numbers cut; layers, counted from the bottom, times ``scale``.

    ``encoder`` takes the place of those that are named.
    """
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
    """Return what differs from the preset, in sentences."""
    seeds, full = (plural(len(grid["seeds"]), "seed") for grid in (data["grid"], printed["grid"]))
    own, theirs = data["model"]["name"], printed["model"]["name"]
    return [
        f"Encoder {own} in every phase" + (f", in place of {theirs}." if own != theirs else "."),
        f"At most {ROWS} rows of each set, {seeds} (the preset: {full}), at most {plural(CAPS['epochs'], 'epoch')}, "
        f"two tuning trials and {data['model'].get('max_length', CAPS['max_length'])} tokens of each input.",
    ]
