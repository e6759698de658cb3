"""Controls that a method declares: the same arm with one ingredient flipped. They need no file of their own.

The control ``random`` of the arm ``dps_mix`` is the arm ``dps_mix_random``. What it flips is declared by the method's
regularisers (``Regulariser.controls``) or by its YAML (``controls``). It inherits everything else from its arm:
settings of ``params.yaml`` and of a task, and tuned values.
"""

from __future__ import annotations

import copy
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from pydantic import ValidationError

from regft_core.errors import ConfigError
from regft_core.schema.method import FINETUNE, Registry
from regft_core.schema.methods import WORDS
from regft_core.schema.sources import paths
from regft_core.settings.document import Document
from regft_core.settings.laying import lay

#: Settings of the length of a training: plain fine-tuning with the same compute has its own.
_LENGTHS = ("epochs", "max_steps", "steps_factor", "checkpoint", "checkpoint_share")


@dataclass(frozen=True)
class Change:
    """One control that is declared for an arm.

    Attributes:
        name: end of the control's name.
        why: what the control lacks or has instead, in a few words.
        values: laid over the arm; a regulariser whose options are None is removed.
        matched: plain fine-tuning with the compute of the arm, instead of ``values``.
    """

    name: str
    why: str
    values: Mapping[str, Any]
    matched: bool = False

    @property
    def settings(self) -> tuple[str, ...]:
        """Dotted settings, or beginnings of settings, that are the control's own: they are not tuned with the arm's."""
        if self.matched:
            return ("phases", "regularisers", "start", *(f"training.{name}" for name in _LENGTHS))
        return tuple(_dotted(self.values))


def changes_of(data: Mapping[str, Any], families: Iterable[Mapping[str, Any]], registry: Registry) -> dict[str, Change]:
    """The controls of an arm by the end of their name.

    Args:
        data: the arm's values, with all layers.
        families: the values of the methods that it is a variant of: it has their ``controls``, too.
    """
    found: dict[str, Change] = {}
    for one in (data, *families):
        declared = one.get("controls")
        for name, values in declared.items() if isinstance(declared, dict) else ():
            if name not in found and isinstance(values, dict) and _applies(values, data):
                rest = {key: value for key, value in values.items() if key not in ("why", "compute")}
                found[name] = Change(name, str(values.get("why", "")), rest, "compute" in values)
    flips: dict[str, list[tuple[str, Change]]] = {}
    for regulariser in sorted({name for _, part in _parts(data) for name in part}):
        try:
            cls = registry[regulariser]
        except (KeyError, ConfigError):
            continue  # said where the method is read
        for name, flip in cls.controls.items():
            values = _flipped_options(data, regulariser, flip, cls.Config)
            if values is not None:
                flips.setdefault(name, []).append((regulariser, Change(name, flip.why, values)))
    for name, several in flips.items():
        for regulariser, change in several:
            end = name if len(several) == 1 else f"{regulariser}_{name}"
            found.setdefault(end, Change(end, change.why, change.values))
    return found


def flipped(document: Document, arm: str, change: Change) -> Document:
    """The document of the control ``change`` of ``arm``, whose own is ``document``."""
    data = {key: value for key, value in copy.deepcopy(document.data).items() if key not in WORDS}
    if change.matched:
        data = _plain(data, arm)
    head: dict[str, Any] = {"description": f"Control of {arm}: {change.why}", "control_for": [arm]}
    head["differs_in"] = list(_declared(change, document.data))
    base = Document(head | data, document.places, document.file)
    layered = lay(base, Document(dict(change.values), {}, document.file))
    for _, part in _parts(layered.data):
        for name in [name for name, options in part.items() if options is None]:
            del part[name]
    inherited = {} if change.matched else dict(document.data.get("sources") or {})
    flips = dict.fromkeys(change.settings, f"ours: {change.why}")
    there = set(paths(layered.data))
    layered.data["sources"] = {path: text for path, text in {**inherited, **flips}.items() if path in there}
    return layered


def _declared(change: Change, data: Mapping[str, Any]) -> Iterator[str]:
    """The settings in which the control differs; a regulariser that the arm does not have counts as one."""
    own = {phase: set(part) for phase, part in _parts(data)}
    for path in dict.fromkeys(change.settings):
        parts = path.split(".")
        at = parts.index("regularisers") if "regularisers" in parts else len(parts)
        phase = parts[1] if parts[0] == "phases" and len(parts) > 1 else FINETUNE
        added = at + 1 < len(parts) and parts[at + 1] not in own.get(phase, ())
        yield ".".join(parts[: at + 2]) if added else path


def _dotted(values: Mapping[str, Any], at: str = "") -> Iterator[str]:
    for key, value in values.items():
        if isinstance(value, Mapping) and value:
            yield from _dotted(value, f"{at}{key}.")
        else:
            yield f"{at}{key}"


def split_name(name: str) -> Iterable[tuple[str, str]]:
    """(arm, end) of every way to read ``name`` as that of a control, the longest arm first."""
    for at in range(len(name) - 1, 0, -1):
        if name[at] == "_" and at + 1 < len(name):
            yield name[:at], name[at + 1 :]


def _plain(data: Mapping[str, Any], arm: str) -> dict[str, Any]:
    """Plain fine-tuning under the arm's own settings, as long as its compute lasts."""
    phases = data.get("phases")
    last = phases.get(FINETUNE, {}) if isinstance(phases, dict) else data
    training = {key: value for key, value in (last.get("training") or {}).items() if key not in _LENGTHS}
    model = {"model": data["model"]} if "model" in data else {}
    return {**model, "training": {**training, "steps_factor": {"match": arm}}}


def _parts(data: Mapping[str, Any]) -> list[tuple[str, dict[str, Any]]]:
    """(phase, its regularisers) of everything in ``data`` that has some."""
    phases = data.get("phases")
    places = phases.items() if isinstance(phases, dict) else [(FINETUNE, data)]
    found = [(name, place.get("regularisers")) for name, place in places if isinstance(place, dict)]
    return [(name, part) for name, part in found if isinstance(part, dict)]


def _flipped_options(data: Mapping[str, Any], regulariser: str, flip: Any, config: Any) -> dict[str, Any] | None:
    """What is laid over the arm to flip the regulariser's options wherever it is; None where that changes nothing."""
    phases: dict[str, Any] = {}
    for phase, part in _parts(data):
        if regulariser in part and _changes(part[regulariser], flip, config):
            phases[phase] = {"regularisers": {regulariser: dict(flip.options)}}
    if not phases:
        return None
    return {"phases": phases} if isinstance(data.get("phases"), dict) else phases[FINETUNE]


def _changes(given: Any, flip: Any, config: Any) -> bool:
    try:
        before = config.model_validate(given)
    except ValidationError:
        return False  # told where the arm is read
    return flip.when(before) and any(getattr(before, name) != value for name, value in flip.options.items())


def _applies(values: Mapping[str, Any], data: Mapping[str, Any]) -> bool:
    """Whether the arm has the phases that a control of its family changes, and the regularisers that it removes."""
    own = data.get("phases")
    changed = values.get("phases") or {}
    if not isinstance(changed, dict) or (changed and not isinstance(own, dict)):
        return False
    for name, phase in changed.items():
        there = own.get(name) if isinstance(own, dict) else None
        if not isinstance(there, dict):
            return False
        removed = [one for one, options in (phase.get("regularisers") or {}).items() if options is None]
        if any(one not in (there.get("regularisers") or {}) for one in removed):
            return False
    return True
