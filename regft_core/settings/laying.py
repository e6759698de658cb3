"""Mappings laid over each other before anything is validated; each value keeps the place that it came from."""

from __future__ import annotations

import copy
from collections.abc import Collection, Iterator, Mapping
from typing import Any

from regft_core.settings.document import Document, KeyPath, Place

#: A length of a training -> the weaker ways to say one, which it replaces where the same layer does not say them.
_REPLACES = {
    "epochs": ("max_steps", "steps_factor"),
    "max_steps": ("steps_factor",),
    "warmup_ratio": ("warmup_steps",),
}


def lay(base: Document, over: Document, at: KeyPath = (), to: KeyPath = (), skip: Collection[str] = ()) -> Document:
    """Return ``base`` with the mapping that stands at ``at`` in ``over`` laid over its mapping at ``to``, key by key.

    Mappings are merged; anything else is replaced. ``skip`` names keys of the layer that are left out. Where either
    is no mapping, ``base`` comes back as it is: what is wrong is told where that is validated.
    """
    data, places = copy.deepcopy(base.data), dict(base.places)
    target: Any = data
    for part in to:
        target = target.setdefault(part, {}) if isinstance(target, dict) else None
    layer = over.value(at)
    if not isinstance(target, dict) or not isinstance(layer, dict):
        return base

    def merge(target: dict[str, Any], layer: Mapping[str, Any], path: KeyPath, source: KeyPath) -> None:
        if path[-1:] == ("training",):
            for weaker in {name for key in layer for name in _REPLACES.get(key, ())} - layer.keys():
                target.pop(weaker, None)
        for key, value in layer.items():
            here, there = (*path, key), (*source, key)
            places[here] = over.place(there)
            if isinstance(value, dict) and isinstance(target.get(key), dict):
                merge(target[key], value, here, there)
                continue
            for below in _below(target.get(key)):
                places.pop((*here, *below), None)
            target[key] = copy.deepcopy(value)
            places.update({(*here, *below): over.place((*there, *below)) for below in _below(value)})

    merge(target, {key: value for key, value in layer.items() if key not in skip}, to, at)
    return Document(data, places, base.file)


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
