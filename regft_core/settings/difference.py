"""In what two arms differ, option by option, and the sentence that says it."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any, NamedTuple

from pydantic import BaseModel

from regft_core.hooks import compose, phase_entries
from regft_core.names import listing
from regft_core.schema.method import FINETUNE, Method
from regft_core.schema.training import TrainingConfig

#: Differences that a sentence names one by one.
NAMED = 4


#: Stands for the value of a setting that an arm does not have.
MISSING = "nothing"


class Difference(NamedTuple):
    """One setting in which two arms differ; ``MISSING`` where one of them does not have it."""

    path: str
    one: Any
    other: Any


def settings_of(
    method: Method, registry: Mapping[str, Any], shared: TrainingConfig, *, acting: bool = False
) -> dict[str, Any]:
    """Return the dotted settings that decide what an arm computes; those of the last phase have no prefix.

    A phase before the last one, and a regulariser, has a setting of its own, which is True.

    Args:
        registry: the regularisers' classes, which are asked for the protocol that a phase runs under.
        shared: the protocol that all methods share.
        acting: whether regularisers of strength 0 are left out: arms that are equal then train the same bits.
    """
    settings: dict[str, Any] = {f"model.{key}": value for key, value in method.config.model.items()}
    for phase in method.phases:
        start = "" if phase.name == FINETUNE else f"phases.{phase.name}."
        settings |= {start[:-1]: True} if start else {}
        training = compose.resolve_training(phase_entries.entries(registry, phase.regularisers), phase, shared)[0]
        parts: dict[str, Any] = {"data": phase.data, "training": training, "seed": phase.seed}
        parts |= {"start": phase.start, "repeat": phase.repeat, "method": phase.lent and phase.lent.method}
        parts |= {f"model.{key}": value for key, value in phase.model.items()}
        for name, options in phase.regularisers:
            if not acting or registry[name].declare(options).active:
                settings[f"{start}regularisers.{name}"] = True
                parts[f"regularisers.{name}"] = options
        settings |= {path: value for key, part in parts.items() for path, value in _leaves(start + key, part)}
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
    every = (Difference(path, one.get(path, MISSING), other.get(path, MISSING)) for path in {**one, **other})
    return [difference for difference in every if difference.one != difference.other]


def takes_away(method: Mapping[str, Any], control: Mapping[str, Any]) -> bool:
    """Whether a control is its method at strength 0: plain fine-tuning, or nothing in the place of its ingredient.

    Both are settings that act; see :func:`settings_of`.
    """
    plain = control.get("repeat", True) is None  # a repeat has settings of its own in its place
    plain = plain and not any(path.startswith(("regularisers.", "phases.")) for path in control)
    return plain or all(d.other is MISSING or d.path == "start" for d in differences(method, control))


def undeclared(found: Sequence[Difference], declared: Sequence[str]) -> list[str]:
    """Paths of differences that are neither ``declared`` nor below a declared path.

    ``phases.finetune.`` may stand before a declared path.
    """
    above = [path.removeprefix(f"phases.{FINETUNE}.") for path in declared]
    return [one.path for one in found if not any(f"{one.path}.".startswith(f"{path}.") for path in above)]


def sentence(one: Mapping[str, Any], other: Mapping[str, Any]) -> str:
    """Say what a control (``other``) has instead of what its method (``one``) has; see :func:`settings_of`."""
    found = differences(one, other)
    whole = [d.path for d in found if d.path.split(".")[-2:-1] in (["phases"], ["regularisers"])]
    said = []
    for path, given, instead in found:
        *_, kind, name = f".{path}".split(".")
        if path in whole:
            what = f"phase {name}" if kind == "phases" else name
            said.append(f"no {what}" if instead is MISSING else f"{what} in addition")
        elif not path.startswith(tuple(f"{top}." for top in whole)) and not (
            path == "start" and any(top.startswith("phases.") for top in whole)
        ):
            short = path.removeprefix("regularisers.").replace(".regularisers.", ": ")
            said.append(f"{short} is {_plain(instead)} instead of {_plain(given)}")
    more = len(said) - NAMED
    return listing(said[:NAMED]) + (f", and {more} more" if more > 0 else "")


def _plain(value: Any) -> str:
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, tuple):
        return f"[{', '.join(map(_plain, value))}]"
    return "its default" if value is None else f"{value:g}" if isinstance(value, float) else str(value)
