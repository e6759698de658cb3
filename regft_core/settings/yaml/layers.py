"""A YAML file with parts of other files laid over it, in which problems still name the line that a value came from."""

from __future__ import annotations

import copy
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from regft_core.errors import Problem
from regft_core.settings.yaml.document import Document, KeyPath, dotted


@dataclass(frozen=True)
class Layered(Document):
    """Values of several documents as one.

    Attributes:
        origins: key path -> the document that it (and what is below it) came from, and its path there.
    """

    origins: Mapping[KeyPath, tuple[Document, KeyPath]] = field(default_factory=dict)

    def problem(self, code: str, path: KeyPath, message: str, hint: str = "") -> Problem:
        """A problem at ``path``, in the file that the value there came from."""
        document, at = self.origin(path)
        return Problem(code, document.file, document.line(at), dotted(at), message, hint)

    def origin(self, path: KeyPath) -> tuple[Document, KeyPath]:
        """The document that the value at ``path`` came from, and its path there."""
        for end in range(len(path), -1, -1):
            if path[:end] in self.origins:
                document, at = self.origins[path[:end]]
                return document, (*at, *path[end:])
        return self, path

    def place(self, path: KeyPath) -> str:
        """``file:line`` of the value at ``path``."""
        document, at = self.origin(path)
        return f"{document.file}:{document.line(at)}"


def as_layered(document: Document) -> Layered:
    """``document`` with nothing laid over it yet."""
    if isinstance(document, Layered):
        return document
    return Layered(document.data, document.lines, document.file)


def lay(base: Document, over: Document, at: KeyPath, skip: tuple[str, ...] = ()) -> Layered:
    """``base`` with the mapping that stands at ``at`` in ``over`` laid over it, key by key.

    Mappings are merged; anything else is replaced. What a layer says of a length replaces every way of saying it:
    ``epochs`` alone switches ``max_steps`` off, either of them ``steps_factor``, and ``warmup_ratio`` alone
    ``warmup_steps``. ``skip`` names keys of the layer that are not laid over.
    """
    layer: Any = over.data
    for part in at:
        layer = layer[part]
    found = as_layered(base)
    data, lines, origins = copy.deepcopy(found.data), dict(found.lines), dict(found.origins)

    def merge(target: dict[str, Any], values: Mapping[str, Any], path: KeyPath, source: KeyPath) -> None:
        if path[-1:] == ("training",):
            values = _whole_lengths(target, values)
        for key, value in values.items():
            here, there = (*path, key), (*source, key)
            lines[here] = over.line(there)
            if isinstance(value, dict) and isinstance(target.get(key), dict):
                merge(target[key], value, here, there)
                continue
            target[key] = copy.deepcopy(value)
            for known in [known for known in origins if known[: len(here)] == here]:
                del origins[known]
            origins[here] = (over, there)
            below = [path for path in over.lines if path[: len(there)] == there]
            lines.update({(*here, *path[len(there) :]): over.lines[path] for path in below})

    merge(data, {key: value for key, value in layer.items() if key not in skip}, (), at)
    return Layered(data, lines, found.file, origins)


def _whole_lengths(target: dict[str, Any], values: Mapping[str, Any]) -> dict[str, Any]:
    """``values`` with the switches that follow from them; takes out of ``target`` what they replace."""
    whole = dict(values)
    if "epochs" in values:
        whole.setdefault("max_steps", None)
    if "epochs" in values or "max_steps" in values:
        target.pop("steps_factor", None)
    if "warmup_ratio" in values:
        whole.setdefault("warmup_steps", None)
    return whole


def nested(values: Mapping[str, Any]) -> dict[str, Any]:
    """``{"training.learning_rate": 1e-5}`` as nested mappings."""
    found: dict[str, Any] = {}
    for path, value in values.items():
        *parents, last = path.split(".")
        at = found
        for part in parents:
            at = at.setdefault(part, {})
        at[last] = value
    return found
