"""Every setting of a method with its value and where the value is from.

A setting's source is, in this order: what the method's file says of its path; the regulariser's class, when the value
is the option's default; what the file says of the nearest section above it. A value that names another phase of the
method is wiring, not a setting.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any, ClassVar, Protocol

from pydantic_core import to_jsonable_python

from regft_core.config.checks.methods import phase_path
from regft_core.config.method import Method
from regft_core.config.schema import StrictModel
from regft_core.config.schema.sources import SECTIONS


class Sourced(Protocol):
    """What is asked of a regulariser's class; ``hooks.base.Regulariser`` answers it."""

    Config: ClassVar[type[StrictModel]]
    sources: ClassVar[Mapping[str, str]]


@dataclass(frozen=True)
class Setting:
    """One value of a method.

    Attributes:
        path: its place in the method's file, dotted.
        value: as in the file; of an option that the file leaves out, its default.
        source: where the value is from; empty where nothing says so.
        given: whether the file says it.
    """

    path: str
    value: Any
    source: str
    given: bool


def settings(method: Method, registry: Mapping[str, type[Sourced]]) -> list[Setting]:
    """The settings of a method: its options phase by phase, defaults included, then what else its file sets."""
    data = method.config.model_dump(mode="json", exclude_unset=True, include=set(SECTIONS))
    sources, names = method.config.sources, {phase.name for phase in method.phases}
    found: dict[str, Setting] = {}
    for phase in method.phases:
        at = phase_path(method.config, phase.name)
        for name, options in phase.regularisers:
            cls = registry[name]
            for option, value in options.model_dump(mode="json").items():
                path = ".".join((*at, "regularisers", name, option))
                given = option in options.model_fields_set
                if given and isinstance(value, str) and value in names:
                    continue
                default = to_jsonable_python(cls.Config.model_fields[option].get_default(call_default_factory=True))
                inherited = cls.sources.get(option, "") if value == default else ""
                source = sources.get(path, "") or inherited or (_above(path, sources) if given else "")
                found[path] = Setting(path, value, source, given)
    for path, value in _leaves(data):
        wiring = path.endswith(".start") and value in names
        if ".regularisers." not in f".{path}" and not wiring:
            found[path] = Setting(path, value, sources.get(path, "") or _above(path, sources), True)
    return list(found.values())


def _leaves(data: Mapping[str, Any], at: str = "") -> Iterator[tuple[str, Any]]:
    for key, value in data.items():
        if isinstance(value, Mapping):
            yield from _leaves(value, f"{at}{key}.")
        else:
            yield f"{at}{key}", value


def _above(path: str, sources: Mapping[str, str]) -> str:
    """The source of the nearest section that ``path`` is in."""
    while "." in path:
        path = path.rpartition(".")[0]
        if path in sources:
            return sources[path]
    return ""
