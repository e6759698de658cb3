"""Weights that a run has in common with its pretrained encoder are stored once: in the encoder's own files.

A tensor whose bits are those of the loaded checkpoint is left out of a run's ``weights``; ``encoder_tensors.json``
beside them names it and the encoder's content hash. A frozen probe stores its head, BitFit its biases and head, LoRA
the matrices that it changed. Who reads weights gets them whole, with the same bits. Drawn tensors (heads) are never
left out: no file has them.

A matrix most of whose rows are near the encoder's is stored as differences of bit patterns, in 16 bits instead of 32.
Plain fine-tuning leaves most word vectors so: no text has the word, and weight decay moves it in the last digits.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from regft_core.errors import InputChanged
from regft_core.io.canonical import json_text

if TYPE_CHECKING:
    from torch import Tensor

    from regft_core.runs.context import Context
    from regft_core.runs.store.stored_run import StoredRun
    from regft_core.schema.method import Phase

    Tensors = Mapping[str, Mapping[str, Tensor]]

FILE = "encoder_tensors.json"
WEIGHTS = "weights"
#: What the parts of a matrix that is stored as differences are called, behind its name.
DIFFERENCES, ROWS, VALUES = ".differences", ".far_rows", ".far_values"


def load_pretrained(context: Context, phase: Phase) -> Any:
    """The classifier that a phase begins with, before any edit, on the CPU; its drawn head is that of seed 0."""
    from regft_core.models.load import load_classifier
    from regft_core.schema import DropoutConfig

    data = context.data(phase)
    return load_classifier(
        context.source,
        kind=data.kind,
        labels=data.labels,
        dropout=DropoutConfig(),
        head_seed=0,
        pooling=context.encoder.pooling,
        rows_per_example=context.rows_per_example(data.examples),
    )


@dataclass(frozen=True)
class Listed:
    """Names of a run's weights that its own file does not hold as they are.

    Attributes:
        same: those with the bits of the encoder's.
        near: those stored as differences from the encoder's.
    """

    same: tuple[str, ...] = ()
    near: tuple[str, ...] = ()


def without_encoder(
    context: Context, phase: Phase, tensors: Tensors, before: StoredRun | None = None
) -> tuple[Tensors, dict[str, str]]:
    """What is stored of a phase's tensors, and the file that names what is not.

    ``before``: the run whose weights these restore. They keep its form, so that their hashes can be compared.
    """
    known = None if before is None else _read_list(before)
    if WEIGHTS not in tensors or (before is not None and known is None):
        return tensors, {}
    from regft_core.models.load import NEW_PARAMETERS

    model = load_pretrained(context, phase)
    drawn = getattr(model, NEW_PARAMETERS)
    own = {name: tensor for name, tensor in model.state_dict().items() if name not in drawn}
    weights = tensors[WEIGHTS]
    same = sorted(name for name, tensor in weights.items() if name in own and _same_bits(tensor, own[name]))
    kept = {name: tensor for name, tensor in weights.items() if name not in set(same)}
    near = {}
    if known is None or "near" in known:
        near = {name: found for name in kept if name in own and (found := _differences(kept[name], own[name]))}
    if not same and not near:
        return tensors, {}
    for name, parts in near.items():
        del kept[name]
        kept |= {name + part: tensor for part, tensor in parts.items()}
    listed = {"encoder": context.source.content_sha256, "tensors": same}
    return {**tensors, WEIGHTS: kept}, {FILE: json_text(listed | ({"near": sorted(near)} if near else {}))}


def _same_bits(one: Tensor, other: Tensor) -> bool:
    """Unlike ``torch.equal``, NaN is itself and -0 is not 0."""
    import torch

    if one.dtype != other.dtype or one.shape != other.shape:
        return False
    first, second = (tensor.detach().cpu().contiguous().flatten().view(torch.uint8) for tensor in (one, other))
    return torch.equal(first, second)


def _differences(tensor: Tensor, own: Tensor) -> dict[str, Tensor] | None:
    """The parts of a matrix as differences from the encoder's; None where that is not shorter.

    Returns the differences of the bit patterns as int16, and the rows that they cannot hold, with their numbers.
    """
    import torch

    if tensor.dim() < 2 or tensor.shape != own.shape or {tensor.dtype, own.dtype} != {torch.float32}:
        return None
    tensor = tensor.detach().cpu().contiguous()
    apart = tensor.view(torch.int32) - own.detach().cpu().contiguous().view(torch.int32)
    short = apart.to(torch.int16)
    far = (short != apart).flatten(1).any(1).nonzero()[:, 0]
    if 2 * len(far) >= len(tensor):
        return None
    short[far] = 0
    return {DIFFERENCES: short, ROWS: far, VALUES: tensor[far]}


def _read_list(stored: StoredRun) -> dict[str, Any] | None:
    """The content of ``FILE``; None for a run that has none."""
    return json.loads(stored.read_text(FILE)) if FILE in stored.files else None


def left_out(context: Context, stored: StoredRun) -> Listed:
    """The weights of a run that are read with the encoder.

    Raises InputChanged when the encoder is another than the one that they were compared with.
    """
    listed = _read_list(stored)
    if listed is None:
        return Listed()
    if listed["encoder"] != context.source.content_sha256:
        raise InputChanged(f"the encoder '{context.source.name}', of which run {stored.key} has weights,")
    return Listed(tuple(listed["tensors"]), tuple(listed.get("near", ())))


def whole(weights: Mapping[str, Tensor], own: Mapping[str, Tensor], listed: Listed) -> dict[str, Tensor]:
    """Weights as they were when they were computed, from what is stored and the encoder's ``own``."""
    import torch

    found = dict(weights) | {name: own[name] for name in listed.same}
    for name in listed.near:
        short, rows, values = (found.pop(name + part) for part in (DIFFERENCES, ROWS, VALUES))
        bits = own[name].detach().cpu().contiguous().view(torch.int32) + short
        found[name] = bits.view(torch.float32)
        found[name][rows] = values
    return found


def load_whole(context: Context, phase: Phase, stored: StoredRun, name: str) -> dict[str, Tensor]:
    """Tensors of a run as they were when it was computed; raises as ``StoredRun.load_tensors`` and ``left_out``."""
    tensors = stored.load_tensors(name)
    if name == WEIGHTS and (listed := left_out(context, stored)) != Listed():
        return whole(tensors, load_pretrained(context, phase).state_dict(), listed)
    return tensors
