"""A preset made small: a tenth of a minute per run on a laptop, with the same methods, tasks and report sections.

What is cut, everywhere it stands: epochs, steps, batches, lengths, trials, seeds. Layer numbers are scaled to the
encoder's depth. The rows are another part's matter (``plan/small.py``).
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

ENCODER = "minilm"
#: Training rows of the largest size; every further size of the preset is half of the one above it, two in all.
TRAIN_ROWS = 32
#: Rows of each set that judges, at most.
JUDGED_ROWS = 32
SEEDS = [0, 1]
#: Whole numbers by the name of their key, wherever it stands: at most this.
CAPS = {
    "max_steps": 4,
    "epochs": 1,
    "warmup_steps": 1,
    "batch_size": 8,
    "times": 2,
    "trials": 2,
    "max_length": 64,
    "windows": 2,
    "stride": 16,
    "bootstrap_samples": 400,
}


def shrunk(data: Mapping[str, Any], depth: int, of: str) -> dict[str, Any]:
    """The data of a preset in small, for an encoder of ``depth`` layers; rows and names of tasks stay.

    ``of``: the encoder that the preset's layer numbers are for.
    """
    small: dict[str, Any] = _capped(data, depth / _depth(of))
    grid = dict(small.get("grid") or {})
    grid |= {"sizes": _two_sizes(grid.get("sizes")), "seeds": SEEDS}
    for own in (small.get("task_settings") or {}).values():
        if isinstance(own, dict) and "sizes" in own:
            own["sizes"] = _two_sizes(own["sizes"])
    if isinstance(tuning := small.get("tuning"), dict):
        own = tuning.get("methods") or {}
        small["tuning"] = {
            **tuning,
            **({"values": _two_trials(tuning["values"])} if tuning.get("values") else {}),
            **({"methods": {name: _two_trials(trials) for name, trials in own.items()}} if own else {}),
        }
    model = {"name": ENCODER, **{key: v for key, v in (small.get("model") or {}).items() if key not in _ENCODERS_OWN}}
    return {**small, "model": model, "grid": grid}


def _depth(encoder: str) -> int:
    return 24 if "large" in encoder else 12


#: What goes with the preset's encoder.
_ENCODERS_OWN = ("name", "revision")


def _two_sizes(sizes: Any) -> list[int]:
    """As many sizes, at most two."""
    return [TRAIN_ROWS // 2, TRAIN_ROWS][-len(sizes or [1]) :]


def _two_trials(grid: Any) -> Any:
    """Two trials of a grid: two values of its first key, one of each other; of a list its first two."""
    if isinstance(grid, list):
        return grid[:2]
    return {key: values[: 1 if i else 2] for i, (key, values) in enumerate(grid.items())}


def _capped(value: Any, scale: float, key: str = "") -> Any:
    """``value`` with its numbers cut; layers, counted from the bottom, times ``scale``."""
    if isinstance(value, Mapping):
        return {name: _capped(inner, scale, name) for name, inner in value.items()}
    if key == "layers" and isinstance(value, list) and value and min(value) >= 0:
        return sorted({int(layer * scale) for layer in value})
    if key in CAPS and isinstance(value, int) and not isinstance(value, bool):
        return min(value, CAPS[key])
    if isinstance(value, list):
        return [_capped(inner, scale) for inner in value]
    return value


def cuts(method: Mapping[str, Any], depth: int, of: str) -> dict[str, Any]:
    """What of a method's file is cut, as ``method_settings`` say it; ``depth`` and ``of`` as for ``shrunk``."""
    found = {key: method[key] for key in ("training", "regularisers", "phases") if isinstance(method.get(key), Mapping)}
    return _changes(found, _capped(found, depth / _depth(of)))


def over(under: Mapping[str, Any], upper: Mapping[str, Any]) -> dict[str, Any]:
    """``under`` with the nested mappings of ``upper`` laid over it."""
    found = dict(under)
    for key, value in upper.items():
        inside = isinstance(value, Mapping) and isinstance(found.get(key), Mapping)
        found[key] = over(found[key], value) if inside else value
    return found


def _changes(before: Mapping[str, Any], after: Mapping[str, Any]) -> dict[str, Any]:
    found = {}
    for key, value in after.items():
        inside = isinstance(value, dict) and isinstance(before[key], Mapping)
        new = _changes(before[key], value) if inside else value
        if new != ({} if inside else before[key]):
            found[key] = new
    return found


def capped(section: Mapping[str, Any]) -> dict[str, Any]:
    """A section of a task's file in small."""
    found: dict[str, Any] = _capped(section, 1.0)
    return found


def renamed(data: Mapping[str, Any], names: Mapping[tuple[str, str], str]) -> dict[str, Any]:
    """``data`` with the new names of tasks ((task, "") -> name) and of their sets ((task, set) -> name)."""

    def task(name: str) -> str:
        return names.get((name, ""), name)

    def part(text: Any) -> Any:
        if isinstance(text, list):
            return [part(one) for one in text]
        own, slash, judge = text.partition("/")
        return task(own) + (f"/{names.get((own, judge), judge)}" if slash else "")

    found = dict(data)
    found["grid"] = {**data["grid"], "tasks": [task(name) for name in data["grid"]["tasks"]]}
    if settings := data.get("task_settings"):
        found["task_settings"] = {task(name): own for name, own in settings.items()}
    if averages := (data.get("report") or {}).get("averages"):
        shown = {name: [part(one) for one in parts] for name, parts in averages.items()}
        found["report"] = {**data["report"], "averages": shown}
    return found
