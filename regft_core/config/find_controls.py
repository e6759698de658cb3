"""Controls: the arms that separate a method's ingredient from what comes along with it.

A method's YAML says which methods it controls for (``control_for``). Controls follow the family:
a method with ``variant_of`` needs the controls of what it is a variant of, and a combination
(``combines``) each of its ingredients alone.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from regft_core.config.files import METHODS
from regft_core.config.method import Method, is_name
from regft_core.config.yaml.document import load_yaml
from regft_core.errors import ConfigError


@dataclass(frozen=True)
class Control:
    """A method whose YAML says that it controls for a listed one (or for a control of one), but which is not listed."""

    name: str
    control_for: str
    differs_by: str
    #: Whether ``control_for`` is a missing control itself.
    in_turn: bool = False

    def __str__(self) -> str:
        differs = f" (differs by: {self.differs_by})" if self.differs_by else ""
        lacks = "needs its own control" if self.in_turn else "is listed without its control"
        return (
            f"'{self.control_for}' {lacks} '{self.name}'{differs}; add it under "
            f"methods, or run `python -m stages.config controls --write`"
        )


@dataclass
class Controls:
    """What is known of the controls of the listed methods.

    Attributes:
        missing: controls that are not listed.
        present: (method, control) pairs of which both are listed.
        without: listed methods for which no control is declared at all, though they add something.
        unreadable: files that could not be searched for controls.
    """

    missing: list[Control] = field(default_factory=list)
    present: list[tuple[str, str]] = field(default_factory=list)
    without: list[str] = field(default_factory=list)
    unreadable: list[str] = field(default_factory=list)


def find_controls(root: Path, listed: Mapping[str, Method]) -> Controls:
    """Find the controls of ``listed`` methods, and of those controls in turn."""
    controls = Controls()
    declared: dict[str, list[Control]] = {}
    families: dict[str, tuple[str, ...]] = {}
    for path in sorted((root / METHODS).glob("*.yaml")):
        if not is_name(path.stem):
            continue
        try:
            data = load_yaml(path, root).data
        except ConfigError as error:
            if path.stem not in listed:
                first = error.problems[0]
                controls.unreadable.append(f"{first.file} may be a control but cannot be read: {first.message}")
            continue
        families[path.stem] = _names(data.get("variant_of"))
        for ingredient in _names(data.get("combines")):
            alone = Control(ingredient, path.stem, "one ingredient of the combination alone")
            declared.setdefault(path.stem, []).append(alone)
        for target in _names(data.get("control_for")):
            declared.setdefault(target, []).append(Control(path.stem, target, str(data.get("differs_by") or "")))
    for name, method in listed.items():  # arms without a file
        families.setdefault(name, method.config.variant_of)
        for target in method.config.control_for:
            control = Control(name, target, method.config.differs_by)
            if control not in declared.setdefault(target, []):
                declared[target].append(control)
    seen = set(listed)
    queue = list(listed)
    while queue:
        name = queue.pop(0)
        own = _of_family(name, declared, families)
        if not own and name in listed and _needs_control(listed[name]):
            controls.without.append(name)
        for control in own:
            if control.name in listed:
                controls.present.append((name, control.name))
            elif control.name not in seen:
                seen.add(control.name)
                controls.missing.append(Control(control.name, name, control.differs_by, in_turn=name not in listed))
                queue.append(control.name)
    return controls


def _of_family(
    name: str, declared: Mapping[str, list[Control]], families: Mapping[str, tuple[str, ...]]
) -> list[Control]:
    """Controls declared for ``name``; where there are none, those of the methods it is a variant of."""
    found: dict[str, Control] = {}
    trail, queue = {name}, [name]
    while queue:
        at = queue.pop(0)
        for control in declared.get(at, ()):
            if control.name != name:
                found.setdefault(control.name, control)
        for parent in families.get(at, ()):
            if parent not in trail:
                trail.add(parent)
                queue.append(parent)
    return list(found.values())


def _needs_control(method: Method) -> bool:
    """Plain arms and controls are what others are compared with."""
    return not method.config.control_for and any(phase.regularisers for phase in method.phases)


def _names(value: Any) -> tuple[str, ...]:
    items = [value] if isinstance(value, str) else value if isinstance(value, list) else []
    return tuple(item for item in items if isinstance(item, str))
