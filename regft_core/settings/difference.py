"""In what two arms differ, option by option, and the sentence that says it."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any, NamedTuple

from pydantic import BaseModel

from regft_core.hooks import compose, listed
from regft_core.names import listing
from regft_core.schema.method import FINETUNE, Method
from regft_core.schema.training import TrainingConfig

#: Differences that a sentence names one by one.
NAMED = 4


class _Missing:
    def __repr__(self) -> str:
        return "nothing"


MISSING = _Missing()


class Difference(NamedTuple):
    """One setting in which two arms differ; ``MISSING`` where one of them does not have it."""

    path: str
    one: Any
    other: Any


def settings_of(
    method: Method, registry: Mapping[str, Any], shared: TrainingConfig, *, acting: bool = False
) -> dict[str, Any]:
    """Return the dotted settings that decide what an arm computes; those of the last phase have no prefix.

    Args:
        registry: the regularisers' classes, which are asked for the protocol that a phase runs under.
        shared: the protocol that all methods share.
        acting: whether regularisers of strength 0 are left out: arms that are equal then train the same bits.
    """
    settings: dict[str, Any] = {f"model.{key}": value for key, value in method.config.model.items()}
    for phase in method.phases:
        start = "" if phase.name == FINETUNE else f"phases.{phase.name}."
        training = compose.resolve_training(listed.entries(registry, phase.regularisers), phase, shared)[0]
        parts: dict[str, Any] = {"data": phase.data, "training": training, "seed": phase.seed}
        parts |= {"start": phase.start, "repeat": phase.repeat}
        for name, options in phase.regularisers:
            if not acting or registry[name].declare(options).active:
                # Regularisers without options are there or are not.
                parts[f"regularisers.{name}"] = options if type(options).model_fields else True
        for key, value in parts.items():
            settings |= dict(_leaves(start + key, value))
        if settings[f"{start}training.max_steps"] is not None and settings[f"{start}training.epochs"]:
            del settings[f"{start}training.epochs"]  # counts for nothing then
    return settings


def _leaves(path: str, value: Any) -> Iterator[tuple[str, Any]]:
    if isinstance(value, BaseModel):
        for name in type(value).model_fields:
            yield from _leaves(f"{path}.{name}", getattr(value, name))
    else:
        yield path, value


def differences(one: Mapping[str, Any], other: Mapping[str, Any]) -> list[Difference]:
    """Settings in which two arms differ, in the order of the first; see :func:`settings_of`."""
    paths = [*one, *(path for path in other if path not in one)]
    found = (Difference(path, one.get(path, MISSING), other.get(path, MISSING)) for path in paths)
    return [difference for difference in found if difference.one != difference.other]


def undeclared(found: Sequence[Difference], declared: Sequence[str]) -> list[str]:
    """Paths of differences that are neither ``declared`` nor below a declared path."""
    return [one.path for one in found if not any(is_below(one.path, path) for path in declared)]


def is_below(path: str, declared: str) -> bool:
    """Whether ``path`` is ``declared`` or below it; ``phases.finetune.`` may stand before either."""
    declared = declared.removeprefix(f"phases.{FINETUNE}.")
    return path == declared or path.startswith(declared + ".")


def sentence(one: Mapping[str, Any], other: Mapping[str, Any]) -> str:
    """What a control (``other``) has instead of what its method (``one``) has; see :func:`settings_of`."""
    before, after = _names(one), _names(other)
    gone = [name for name in before["phases"] if name not in after["phases"]]
    more = [name for name in after["phases"] if name not in before["phases"]]
    phases = tuple(f"phases.{name}." for name in (*gone, *more))
    said = [f"no phase {name}" for name in gone] + [f"phase {name} in addition" for name in more]
    lost = [name for name in before["regularisers"] if name not in after["regularisers"]]
    new = [name for name in after["regularisers"] if name not in before["regularisers"]]
    said += [f"no {name}" for name in lost] + [f"{name} in addition" for name in new]
    for path, given, instead in differences(one, other):
        named = path.startswith(phases) or (phases and path == "start")
        if not named and not any(f"regularisers.{name}." in f"{path}." for name in (*lost, *new)):
            said.append(f"{_short(path)} is {_plain(instead)} instead of {_plain(given)}")
    return listing_of(said)


def _names(settings: Mapping[str, Any]) -> dict[str, dict[str, None]]:
    """Names of phases before the last one, and of regularisers."""
    found: dict[str, dict[str, None]] = {"phases": {}, "regularisers": {}}
    for path in settings:
        parts = path.split(".")
        for section, names in found.items():
            if section in parts:
                names[parts[parts.index(section) + 1]] = None
    return found


def listing_of(said: Sequence[str]) -> str:
    """The first few, and how many more there are."""
    more = len(said) - NAMED
    return listing(said[:NAMED]) + (f", and {more} more" if more > 0 else "")


def _short(path: str) -> str:
    return path.removeprefix("regularisers.").replace(".regularisers.", ": ")


def _plain(value: Any) -> str:
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, tuple):
        return f"[{', '.join(map(_plain, value))}]"
    return "its default" if value is None else f"{value:g}" if isinstance(value, float) else str(value)
