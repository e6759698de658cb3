"""Laws of a method's strength: at 0 it is plain fine-tuning, near 0 it is near to that, and as it is it is not."""

from __future__ import annotations

import math
from collections.abc import Mapping

import torch
from pydantic import ValidationError
from torch import Tensor

from regft_core.contract.laws import Make, left, same
from regft_core.hooks.phase_entries import Entry

#: How near to strength 0 the limit is tried, and how far the weights may then be from those of plain fine-tuning, as a
#: share of the way that plain fine-tuning goes.
NEAR, LIMIT_TOLERANCE = 1e-9, 1e-2


def off(entry: Entry) -> Entry | None:
    """The regulariser at strength 0; None where its class has no such."""
    cls, options = entry
    if cls.off is None:
        return None
    return Entry(cls, cls.Config.model_validate({**options.model_dump(exclude_unset=True), **cls.off}))


def nearly_off(entry: Entry) -> Entry | None:
    """The regulariser with hardly any strength: the numbers of ``off``, moved a little toward those of ``entry``.

    None where there is no such strength: no number leads to 0, or so small a one is not allowed or does not act.
    """
    cls, options = entry
    zero = off(entry)
    pairs = {name: (getattr(zero.options, name), getattr(options, name)) for name in cls.off or {}} if zero else {}
    near = {
        name: value + NEAR * (strength - value)
        for name, (value, strength) in pairs.items()
        if isinstance(value, float) and isinstance(strength, float) and strength != value
    }
    try:
        found = {**options.model_dump(exclude_unset=True), **(cls.off or {}), **near}
        nearly = Entry(cls, cls.Config.model_validate(found))
    except ValidationError:
        return None
    return nearly if near and nearly.declares.active else None


def changes(make: Make, plain: Make) -> str:
    """A phase leaves something else than plain fine-tuning: weights, what is handed on or kept, or a decision."""
    ours, theirs = left(make()), left(plain())
    return (
        ""
        if not same(ours, theirs)
        else "its weights are those of plain fine-tuning, and it hands on and keeps nothing"
    )


def zero(make_off: Make, plain: Make) -> str:
    """At strength 0 the weights are those of plain fine-tuning with the same dropout and optimiser, bit for bit."""
    ours, theirs = left(make_off()), left(plain())
    differing = [name for name in theirs if name not in ours or not torch.equal(ours[name], theirs[name])]
    return f"{len(differing)} tensors differ, the first is {differing[0]}" if differing else ""


def limit(make_near: Make, plain: Make) -> str:
    """With hardly any strength a run ends close to plain fine-tuning.

    Both must be smooth: without dropout, clipping and weight decay, whose place a method may take, and with steps in
    proportion to the gradient (``epsilon``).
    """
    start, ours, theirs = plain().trainee.plain_weights(), left(make_near()), left(plain())
    start = {name: value.clone() for name, value in start.items()}
    way = _distance(theirs, start)
    apart = _distance({name: ours[name] for name in theirs}, theirs)
    if apart <= LIMIT_TOLERANCE * way:
        return ""
    return f"at {NEAR:g} of its strength it ends {apart / way:.2g} of the way of plain fine-tuning from where that ends"


def _distance(one: Mapping[str, Tensor], other: Mapping[str, Tensor]) -> float:
    """The Euclidean distance of two sets of named tensors."""
    return math.sqrt(sum(float((one[name].double() - other[name].double()).square().sum()) for name in one))
