"""Layers of settings, laid over each other before anything is validated; each value keeps the place it came from.

From weak to strong: ``training`` and ``model`` of ``params.yaml``, the task's own file, ``task_settings.<task>``, the
method's file, ``method_settings.<method>``, ``task_settings.<task>.methods.<method>``, a tuned value.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping
from typing import Any

from regft_core.errors import Problem
from regft_core.schema import Size
from regft_core.schema.params import Params
from regft_core.schema.training import EncoderConfig, TrainingConfig
from regft_core.settings.document import Document, KeyPath, Place
from regft_core.settings.validate import validate

#: Section -> key -> what it replaces where the same layer does not say it: weaker ways to say a length of training,
#: and the commit of another encoder.
_REPLACES: dict[str, dict[str, tuple[str, ...]]] = {
    "training": {
        "epochs": ("max_steps", "steps_factor"),
        "max_steps": ("steps_factor",),
        "warmup_ratio": ("warmup_steps",),
    },
    "model": {"name": ("revision",)},
}


def lay(base: Document, over: Document, at: KeyPath = (), to: str = "", skip: Collection[str] = ()) -> Document:
    """Return ``base`` with the mapping that stands at ``at`` in ``over`` laid over its section ``to``, key by key.

    Mappings are merged; anything else is replaced. ``skip`` names keys of the layer that are left out. Where either
    is no mapping, ``base`` comes back as it is: what is wrong is told where that is validated.
    """
    target, layer, places = base.data.get(to, {}) if to else base.data, over.value(at), dict(base.places)
    if not isinstance(target, dict) or not isinstance(layer, dict):
        return base

    def merge(target: Mapping[str, Any], layer: Mapping[str, Any], path: KeyPath, source: KeyPath) -> dict[str, Any]:
        replaces = _REPLACES.get(str(path[-1]) if path else "", {})
        replaced = {name for key in layer for name in replaces.get(key, ())} - layer.keys()
        merged = {key: value for key, value in target.items() if key not in replaced}
        for key, value in layer.items():
            here, there = (*path, key), (*source, key)
            places[here] = over.place(there)
            if isinstance(value, dict) and isinstance(merged.get(key), dict):
                merged[key] = merge(merged[key], value, here, there)
                continue
            for below in _below(merged.get(key)):
                places.pop((*here, *below), None)
            merged[key] = value
            places.update({(*here, *below): over.place((*there, *below)) for below in _below(value)})
        return merged

    layer = {key: value for key, value in layer.items() if key not in skip}
    merged = merge(target, layer, (to,) if to else (), at)
    return Document({**base.data, to: merged} if to else merged, places, base.file)


def _below(value: Any) -> Iterator[KeyPath]:
    """Yield the paths of everything inside a mapping or a list."""
    items = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
    for key, inner in items:
        yield (key,)
        yield from ((key, *path) for path in _below(inner))


def from_dotted(values: Mapping[str, Any], place: Place) -> Document:
    """Return dotted settings as a document in which everything stands at one place."""
    document = nested(values)
    return Document(document, dict.fromkeys(_below(document), place), place.file)


def nested(values: Mapping[str, Any]) -> dict[str, Any]:
    """``{"training.learning_rate": 1e-5}`` as nested mappings."""
    nest: dict[str, Any] = {}
    for path, value in values.items():
        *parents, last = path.split(".")
        target = nest
        for part in parents:
            target = target.setdefault(part, {})
        target[last] = value
    return nest


def on_task(params: Document, task: str, file: Document | None) -> Document:
    """Return ``params.yaml`` with ``training`` and ``model`` as a task changes them; ``file`` is the task's."""
    for section in ("training", "model"):
        if file is not None:
            params = lay(params, file, (section,), section)
        params = lay(params, params, ("task_settings", task, section), section)
    return params


def shared_sections(document: Document) -> tuple[TrainingConfig | None, EncoderConfig | None, list[Problem]]:
    """Return the protocol and the encoder that all methods share on a task, and what is wrong with them."""
    training, problems = validate(TrainingConfig, document, ("training",))
    model, more = validate(EncoderConfig, document, ("model",))
    if training is not None and training.epochs == 0:
        message, hint = "is 0 (a whole number); allowed: at least 1", "only a method may train nothing"
        more.append(document.problem("invalid-value", ("training", "epochs"), message, hint))
    return training, model, problems + more


def sizes_of(params: Params, task: str) -> tuple[Size, ...]:
    """Return the training sizes of a task of the grid: its own, else those of the grid."""
    own = params.task_settings.get(task)
    return params.grid.sizes if own is None or own.sizes is None else own.sizes


def all_sizes(params: Params) -> list[Size]:
    """Return every training size of a task of the grid, once, in order."""
    return list(dict.fromkeys(size for task in params.grid.tasks for size in sizes_of(params, task)))
