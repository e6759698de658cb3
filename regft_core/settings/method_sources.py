"""Every setting of a method with its value and where the value is from.

A setting's source is, in this order: what the method's file says of its path; the regulariser's class, when the value
is the option's default; what the file says of the nearest section above it. A value that names another phase of the
method is wiring, not a setting.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from pydantic_core import to_jsonable_python

from regft_core.schema.methods import MethodConfig
from regft_core.schema.sources import SECTIONS
from regft_core.settings.document import dotted, leaves


@dataclass(frozen=True)
class Setting:
    """One value of a method.

    Attributes:
        path: its place in the method's file, dotted.
        value: as in the file; of an option that the file leaves out, its default.
        source: where the value is from; empty where nothing says so.
        given: whether the file says the value.
        own: whether the file says the source.
    """

    path: str
    value: Any
    source: str
    given: bool
    own: bool


def settings(method: Any, registry: Mapping[str, Any]) -> list[Setting]:
    """The settings of a method: its options phase by phase, defaults included, then what else its file sets.

    ``method`` is one, or what a report keeps of one: its ``config`` and ``phases``.
    """
    config: MethodConfig = method.config
    data = config.model_dump(mode="json", exclude_unset=True, include=set(SECTIONS))
    names = {phase.name for phase in method.phases}
    found: dict[str, Setting] = {}
    for phase in (phase for phase in method.phases if phase.lent is None):
        at = config.path(phase.name)
        for name, options in phase.regularisers:
            defaults = registry[name].sources if name in registry else {}
            for option, value in options.model_dump(mode="json").items():
                path = dotted((*at, "regularisers", name, option))
                given = option in options.model_fields_set
                if given and isinstance(value, str) and value in names:
                    continue
                default = type(options).model_fields[option].get_default(call_default_factory=True)
                inherited = defaults.get(option, "") if value == to_jsonable_python(default) else ""
                own = config.sources.get(path, "") or ("" if inherited or not given else _above(path, config.sources))
                found[path] = Setting(path, value, own or inherited, given, bool(own))
    for keys, value in leaves(data):
        path, wiring = dotted(keys), keys[-1] == "start" and value in names
        if "regularisers" not in keys and value != {} and not wiring:
            own = config.sources.get(path, "") or _above(path, config.sources)
            found[path] = Setting(path, value, own, True, bool(own))
    return list(found.values())


def _above(path: str, sources: Mapping[str, str]) -> str:
    """The source of the nearest section that ``path`` is in."""
    while "." in path:
        path = path.rpartition(".")[0]
        if path in sources:
            return sources[path]
    return ""
