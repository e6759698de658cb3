"""Controls of an arm that need no file of their own: the same arm with one ingredient flipped, or without its method.

The control ``random`` of the arm ``dps_mix`` is the arm ``dps_mix_random``. What it flips is declared by the method's
regularisers (``Regulariser.controls``) or by its YAML (``controls``). It inherits everything else from its arm. An arm
that declares no control of strength 0 has ``plain``: plain fine-tuning under the arm's own settings.
"""

from __future__ import annotations

import copy
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from typing import Any, Literal

from pydantic import BaseModel, ValidationError

from regft_core.errors import ConfigError
from regft_core.hooks import compose
from regft_core.names import listing
from regft_core.schema.method import FINETUNE, Method, Registry
from regft_core.schema.methods import WORDS
from regft_core.settings.document import Document, KeyPath, dotted, leaves
from regft_core.settings.layers import lay, paths

#: Settings of the length of a training: plain fine-tuning with the same compute has its own.
_LENGTHS = ("epochs", "max_steps", "steps_factor", "checkpoint", "checkpoint_share")


@dataclass(frozen=True)
class Change:
    """One control that is declared for an arm.

    ``values`` are laid over the arm; a regulariser whose options are None is removed. ``plain``: plain fine-tuning in
    place of the arm, with the ``shared`` protocol or ``matched`` to its compute. ``zero``: as of :class:`Control`.
    """

    why: str
    values: Mapping[str, Any] = field(default_factory=dict)
    plain: Literal["shared", "matched"] | None = None
    zero: bool = False

    @property
    def settings(self) -> tuple[str, ...]:
        """Dotted settings, or beginnings of settings, that are the control's own: they are not tuned with the arm's."""
        if self.plain is not None:
            lengths = _LENGTHS if self.plain == "matched" else ()
            return ("phases", "regularisers", "start", *(f"training.{name}" for name in lengths))
        return tuple(dotted(path) for path, _ in leaves(self.values))


def changes_of(data: Mapping[str, Any], families: Iterable[Mapping[str, Any]], registry: Registry) -> dict[str, Change]:
    """The controls of an arm with the values ``data``, and of its ``families``' values, by the end of their name."""
    changes: dict[str, Change] = {}
    for member in (data, *families):
        declared = member.get("controls")
        for name, values in declared.items() if isinstance(declared, dict) else ():
            if name not in changes and isinstance(values, dict) and applies(values, data):
                why = str(values.get("why", ""))
                rest = {key: value for key, value in values.items() if key not in ("why", "compute")}
                removes = all("regularisers" in path and value is None for path, value in leaves(rest))
                matched = Change(why, plain="matched", zero=True)
                changes[name] = matched if values.get("compute") else Change(why, rest, zero=removes)
    flips: dict[str, list[tuple[str, Change]]] = {}
    for regulariser in sorted({name for _, part in regularisers_of(data) for name in part}):
        try:
            cls = registry[regulariser]
        except (KeyError, ConfigError):
            continue  # told where the method is read
        for name, flip in cls.controls.items():
            values, zero = _flipped(data, regulariser, flip, cls)
            if values:
                flips.setdefault(name, []).append((regulariser, Change(flip.why, values, zero=zero)))
    for name, several in flips.items():
        for regulariser, change in several:
            changes.setdefault(name if len(several) == 1 else f"{regulariser}_{name}", change)
    # An arm that is no control, takes steps, and differs from plain fine-tuning in more than its protocol.
    method = len(phases_of(data)) > 1 or any(part for _, part in regularisers_of(data))
    trains = method and _stepping(data) and not data.get("control_for")
    if trains and not any(change.zero for change in changes.values()):
        changes.setdefault("plain", Change("plain fine-tuning", plain="shared", zero=True))
    return changes


def flipped(document: Document, arm: str, change: Change) -> Document:
    data = {key: value for key, value in document.data.items() if key not in WORDS}
    inherited = dict(document.data.get("sources") or {})
    if change.plain is not None:
        data, inherited = _plain(document, arm, change.plain), {}
    head: dict[str, Any] = {"description": f"Control of {arm}: {change.why}", "control_for": [arm]}
    # Without its method's file, and beside a last phase without steps, the protocol is another one.
    other = change.plain == "shared" or (change.plain and FINETUNE not in _stepping(document.data))
    protocol = ["training", "model"] if other else ["training.optimizer"] if change.zero else []
    head["differs_in"] = [*_declared(change, document.data), *protocol]
    base = Document(head | data, document.places, document.file)
    layered = lay(base, Document(dict(change.values), {}, document.file))
    data = copy.deepcopy(layered.data)
    for _, part in regularisers_of(data):
        for name in [name for name, options in part.items() if options is None]:
            del part[name]
    sources = inherited | dict.fromkeys(change.settings, f"ours: {change.why}")
    present = set(paths(data))
    data["sources"] = {path: text for path, text in sources.items() if path in present}
    return replace(layered, data=data)


def _declared(change: Change, data: Mapping[str, Any]) -> Iterator[str]:
    """The settings in which the control differs; a regulariser that the arm does not have counts as one."""
    own = {phase: set(part) for phase, part in regularisers_of(data)}
    for path in change.settings:
        parts = path.split(".")
        at = parts.index("regularisers") if "regularisers" in parts else len(parts)
        phase = parts[1] if parts[0] == "phases" and len(parts) > 1 else FINETUNE
        added = at + 1 < len(parts) and parts[at + 1] not in own.get(phase, ())
        yield ".".join(parts[: at + 2]) if added else path


def _plain(document: Document, arm: str, kind: Literal["shared", "matched"]) -> dict[str, Any]:
    """Plain fine-tuning under the arm's own settings: as long as its compute lasts, or without its method's file."""
    data, (*_, last) = document.data, [FINETUNE, *_stepping(document.data)]
    at: KeyPath = ("phases", last, "training") if isinstance(data.get("phases"), dict) else ("training",)
    training, model = document.value(at) or {}, data.get("model") or {}
    if kind == "matched":
        training = {key: value for key, value in training.items() if key not in _LENGTHS}
        return {"model": model, "training": {**training, "steps_factor": {"match": arm}}}
    sections = (("model", ("model",), model), ("training", at, training))
    return {
        name: {key: value for key, value in section.items() if document.place((*place, key)).file != document.file}
        for name, place, section in sections
    }


def _stepping(data: Mapping[str, Any]) -> list[str]:
    protocols = {name: phase.get("training") for name, phase in phases_of(data).items()}
    return [name for name, own in protocols.items() if not isinstance(own, dict) or own.get("epochs") != 0]


def phases_of(data: Any) -> dict[str, Any]:
    """Phases by name, as far as they can be ones; a method in the short form is one."""
    phases = data.get("phases")
    places = phases if isinstance(phases, dict) else {FINETUNE: data}
    return {name: place for name, place in places.items() if isinstance(place, dict)}


def regularisers_of(data: Any) -> list[tuple[str, dict[str, Any]]]:
    """(phase, its regularisers) of everything in ``data`` that has some."""
    found = [(name, place.get("regularisers")) for name, place in phases_of(data).items()]
    return [(name, part) for name, part in found if isinstance(part, dict)]


def _flipped(data: Mapping[str, Any], regulariser: str, flip: Any, cls: Any) -> tuple[dict[str, Any], bool]:
    """Return the layer that flips a regulariser's options where that changes something, and whether it is off then."""
    phases, zero = {}, True
    for phase, part in regularisers_of(data):
        if regulariser in part:
            with suppress(ValidationError, TypeError):  # told where the arm or the control is read
                before = cls.Config.model_validate(part[regulariser])
                after = cls.Config.model_validate({**part[regulariser], **flip.options})
                zero = zero and not cls.declare(after).active
                if after != before and flip.when(before):
                    phases[phase] = {"regularisers": {regulariser: dict(flip.options)}}
    values = {"phases": phases} if phases and isinstance(data.get("phases"), dict) else phases.get(FINETUNE, {})
    return values, zero


def applies(values: Mapping[str, Any], data: Mapping[str, Any]) -> bool:
    """Whether the arm has the phases that a control of its family changes, and the regularisers that it removes."""
    own, changed = data.get("phases") or {}, values.get("phases") or {}
    if not (isinstance(own, dict) and isinstance(changed, dict)) or not changed.keys() <= own.keys():
        return False
    present = dict(regularisers_of(data))
    return all(
        options is not None or name in present.get(phase, {})
        for phase, part in regularisers_of(values)
        for name, options in part.items()
    )


#: Differences that a sentence names one by one.
NAMED = 4
#: Stands for the value of a setting that an arm does not have.
MISSING = "nothing"


def settings_of(method: Method, registry: Mapping[str, Any], *, acting: bool = False) -> dict[str, Any]:
    """Return the dotted settings that decide what an arm computes; those of the last phase have no prefix.

    An earlier phase, and a regulariser, is a setting, too. ``acting``: without regularisers of strength 0, so that arms
    with equal settings train the same bits.
    """
    settings: dict[str, Any] = {f"model.{key}": value for key, value in method.config.model.items()}
    for phase in method.phases:
        start = "" if phase.name == FINETUNE else f"phases.{phase.name}."
        settings |= {start[:-1]: True} if start else {}
        training = compose.resolve_training(compose.entries(registry, phase.regularisers), phase)[0]
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


def differences(one: Mapping[str, Any], other: Mapping[str, Any]) -> dict[str, tuple[Any, Any]]:
    """Return path -> its two values where arms differ, in the order of the first; ``MISSING`` where one has none."""
    every = {path: (one.get(path, MISSING), other.get(path, MISSING)) for path in {**one, **other}}
    return {path: values for path, values in every.items() if values[0] != values[1]}


def takes_away(method: Mapping[str, Any], control: Mapping[str, Any]) -> bool:
    """Whether a control is its method at strength 0, by settings that act: plain, or nothing for its ingredient."""
    plain = control.get("repeat", True) is None  # a repeat has settings of its own in its place
    plain = plain and not any(path.startswith(("regularisers.", "phases.")) for path in control)
    apart = differences(method, control)
    return plain or all(other is MISSING or path == "start" for path, (_, other) in apart.items())


def undeclared(paths: Iterable[str], declared: Sequence[str]) -> list[str]:
    above = [path.removeprefix(f"phases.{FINETUNE}.") for path in declared]
    return [path for path in paths if not any(f"{path}.".startswith(f"{one}.") for one in above)]


def sentence(one: Mapping[str, Any], other: Mapping[str, Any]) -> str:
    """Say what a control (``other``) has instead of what its method (``one``) has; see :func:`settings_of`."""
    apart = differences(one, other)
    whole = [path for path in apart if path.split(".")[-2:-1] in (["phases"], ["regularisers"])]
    said = []
    for path, (given, instead) in apart.items():
        *_, kind, name = f".{path}".split(".")
        if path in whole:
            what = f"phase {name}" if kind == "phases" else name
            said.append(f"no {what}" if instead is MISSING else f"{what} in addition")
        elif not path.startswith(tuple(f"{top}." for top in whole)) and not (
            path == "start" and any(top.startswith("phases.") for top in whole)
        ):
            short = path.removeprefix("regularisers.").replace(".regularisers.", ": ")
            said.append(f"{short} is {_shown(instead)} instead of {_shown(given)}")
    said = list(dict.fromkeys(said))  # one regulariser of two phases
    more = len(said) - NAMED
    return listing(said[:NAMED]) + (f", and {more} more" if more > 0 else "")


def _shown(value: Any) -> str:
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, tuple):
        return f"[{', '.join(map(_shown, value))}]"
    return "its default" if value is None else f"{value:g}" if isinstance(value, float) else str(value)
