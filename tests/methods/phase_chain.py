"""Runs phases one after another on a tiny encoder, each from the weights of the one before; no store, no files."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import torch

from regft_core.config.method import Phase
from regft_core.config.schema import DataConfig, TrainingConfig
from regft_core.data.encode import Encoded, encode
from regft_core.data.examples import Example
from regft_core.models.load import load_tokenizer
from regft_core.phases.training_run import PhaseInputs, Trained, outcome_tensors, train
from tests.methods.harness import TRAINING, entries, examples, source_of

NO_STEPS = TRAINING.model_copy(update={"epochs": 0})


@dataclass
class Outcome:
    """What a phase left: weights by plain name, and the finished run."""

    weights: dict[str, torch.Tensor]
    trained: Trained
    inputs: PhaseInputs

    @property
    def model(self) -> Any:
        return self.trained.trainee.model.eval()

    @property
    def encoded(self) -> Encoded:
        return self.inputs.encoded


def run_phase(
    regularisers: Sequence[tuple[str, dict[str, Any]]] = (),
    *,
    name: str = "finetune",
    training: TrainingConfig = TRAINING,
    start: Mapping[str, torch.Tensor] | None = None,
    start_head: bool = True,
    architecture: str = "bert",
    pooling: str = "head",
    separately: bool = False,
    kind: str = "classification",
    labels: int = 2,
    pair: bool = False,
    rows: Sequence[Example] | None = None,
    seed: int = 0,
    masked_lm: bool = False,
    streams: Mapping[str, str] | None = None,
) -> Outcome:
    """One phase to its end; ``start`` are weights by plain name."""
    source = source_of(architecture, masked_lm)
    tokenizer = load_tokenizer(source)
    given = list(rows) if rows is not None else examples(24, pair=pair, kind=kind, labels=labels)
    encoded = encode(given, tokenizer, 32, rows_per_example=2 if separately else 1)
    inputs = PhaseInputs(
        phase=Phase(name, DataConfig(), "checkpoint", None, None, (), training, {}),
        entries=entries(regularisers),
        seed=seed,
        streams=streams or {"noise": name, "order": name, "head": "head"},
        source=source,
        tokenizer=tokenizer,
        encoded=encoded,
        train_rows=list(range(len(given))),
        validation_rows=[],
        kind=kind,
        labels=[f"label_{i}" for i in range(labels)] if kind == "classification" else None,
        keyword_segment=None,
        device="cpu",
        pooling=pooling,
        start=start,
        start_head=start_head,
        final=name == "finetune",
    )
    trained = train(inputs)
    tensors = outcome_tensors(inputs, trained, weights=True)
    return Outcome(tensors["weights"], trained, inputs)
