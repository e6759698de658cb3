"""Weights that a run has in common with its pretrained encoder are stored once: in the encoder's own files.

A tensor with the bits of the loaded checkpoint is left out of a run's ``weights``; ``encoder_tensors.json`` names it
and the encoder's content hash. Drawn tensors (heads) are never left out: no file has them. What an earlier phase
answers to the rows of another is computed here, too: this code is in the key of the phase that learns it.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import replace
from hashlib import sha256
from typing import TYPE_CHECKING, Any

from cachetools import LRUCache, cached

from regft_core.disk.canonical import json_text
from regft_core.errors import InputChanged

if TYPE_CHECKING:
    from torch import Tensor

    from regft_core.hooks.declare import Handed
    from regft_core.runs.run_folder import StoredRun
    from regft_core.runs.run_phase import RunPhase

    Tensors = Mapping[str, Mapping[str, Tensor]]

FILE = "encoder_tensors.json"
WEIGHTS = "weights"


def load_pretrained(phase: RunPhase, task: Mapping[str, Any] | None = None) -> Any:
    """Return the classifier that a phase begins with, before any edit, on the CPU; ``task``: whose labels it has."""
    from regft_core.models.load import load_classifier
    from regft_core.schema import DropoutConfig

    return load_classifier(
        phase.source,
        kind=phase.rows.kind if task is None else task["kind"],
        labels=phase.rows.labels if task is None else task["labels"],
        dropout=DropoutConfig(),
        head_seed=0,
        pooling=phase.encoder.pooling,
        rows_per_example=phase.rows_per_example,
    )


def without_encoder(phase: RunPhase, tensors: Tensors) -> tuple[Tensors, dict[str, str]]:
    """Return the tensors of a phase that are stored, and the file that names the weights that are not."""
    if WEIGHTS not in tensors:
        return tensors, {}
    weights, encoder = tensors[WEIGHTS], encoder_sha256(phase)
    same = [name for name in sorted(weights) if _sha256(weights[name]) == encoder.get(name)]
    if not same:
        return tensors, {}
    changed = {name: tensor for name, tensor in weights.items() if name not in same}
    listed = {"encoder": phase.source.content_sha256, "tensors": same}
    return {**tensors, WEIGHTS: changed}, {FILE: json_text(listed)}


def _hashed(phase: RunPhase) -> tuple[Any, ...]:
    rows = phase.rows
    return phase.source, rows.kind, tuple(rows.labels or ()), phase.encoder.pooling, phase.rows_per_example


@cached(LRUCache(4), key=_hashed, info=True)
def encoder_sha256(phase: RunPhase) -> dict[str, str]:
    """The hash of every tensor of the checkpoint, once for all runs of a process; drawn tensors are not among them."""
    model = load_pretrained(phase)
    return {name: _sha256(t) for name, t in model.state_dict().items() if name not in model.regft_new_parameters}


def _sha256(tensor: Tensor) -> str:
    """The hash of the bits: unlike for ``torch.equal``, NaN is itself and -0 is not 0."""
    import torch

    values = tensor.detach().cpu().contiguous()
    hashed = sha256(f"{values.dtype} {tuple(values.shape)}".encode())
    hashed.update(values.flatten().view(torch.uint8).numpy().data)
    return hashed.hexdigest()


def left_out(phase: RunPhase, stored: StoredRun) -> list[str]:
    """The names of the weights of a run that the encoder's files have; raises InputChanged for another encoder."""
    if FILE not in stored.files:
        return []
    listed = json.loads(stored.read_bytes(FILE))
    if listed["encoder"] != phase.source.content_sha256:
        what = f"the encoder '{phase.source.name}', of which run {stored.key} has weights, was replaced"
        raise InputChanged("input-changed", what)
    return list(listed["tensors"])


def load_whole(phase: RunPhase, stored: StoredRun, name: str) -> dict[str, Tensor]:
    """Tensors of a run as they were when it was computed; raises as ``StoredRun.load_tensors`` and ``left_out``."""
    tensors = stored.load_tensors(name)
    if name == WEIGHTS and (names := left_out(phase, stored)):
        encoder = load_pretrained(phase).state_dict()
        tensors |= {name: encoder[name] for name in names}
    return tensors


def earlier_answers(earlier: RunPhase, given: Handed, phase: RunPhase, *, hidden: bool) -> Handed:
    """Return what an ``earlier`` phase has ``given``, with answers and ``hidden`` states for the rows of ``phase``."""
    import torch

    from regft_core.data.batches import padding_of
    from regft_core.evaluate.logits import predict

    model = load_pretrained(earlier)
    model.load_state_dict(model.state_dict() | given.weights)
    outputs = predict(
        model.to(earlier.run.device),
        earlier.encode(phase.rows.examples),
        device=earlier.run.device,
        precision=earlier.training.precision,
        padding=padding_of(earlier.tokenizer),
        kind=earlier.rows.kind,
        hidden=hidden,
    )
    answers, states = torch.from_numpy(outputs).tensor_split([model.config.num_labels], 1)
    return replace(given, answers=answers.contiguous(), hidden=states.contiguous() if hidden else None)
