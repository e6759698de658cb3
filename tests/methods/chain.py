"""Runs all phases of a method in memory, as the stages do but without a store or files."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from copy import deepcopy
from dataclasses import dataclass, replace
from functools import cache, cached_property
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import load, save

from regft_core.contract.laws import counted_fits
from regft_core.data.batches import padding_of
from regft_core.data.encode import Encoded, encode
from regft_core.data.examples import Example
from regft_core.data.prompts import Reading
from regft_core.evaluate.logits import predict
from regft_core.hooks import compose
from regft_core.hooks.declare import Handed
from regft_core.hooks.registry import discover
from regft_core.models.load import load_tokenizer
from regft_core.models.source import ModelSource, resolve_model
from regft_core.runs.rows import split_rows
from regft_core.runs.training_run import PhaseInputs, TrainedPhase, outcome_tensors, train
from regft_core.schema import DropoutConfig
from regft_core.schema.method import FINETUNE, Method, Phase
from regft_core.schema.methods import DataConfig, RepeatConfig
from regft_core.schema.params import Params
from regft_core.schema.training import EncoderConfig, TrainingConfig
from regft_core.settings.build_method import MethodBuilder
from regft_core.settings.document import Document, load_yaml
from regft_core.training.merges import mean
from tests.methods.harness import TRAINING, Listed, entries, examples, names_of, prompt_of, setting_of, source_of
from tests.tiny import EMBEDDERS, scratch_folder, tiny_model_dir

REPOSITORY = Path(__file__).resolve().parents[2]
METHODS = sorted(path.stem for path in (REPOSITORY / "pipelines" / "methods").glob("*.yaml"))


@cache
def method(name: str, text: str | None = None) -> Method:
    """A shipped method, a control that one declares, or what ``text`` says; over the protocol of these tests."""
    settings = Params.model_construct(method_settings={}, task_settings={}, methods=(), training=TRAINING)
    params = Document({"training": TRAINING.model_dump(mode="json")}, {}, "params.yaml")
    builder = MethodBuilder(REPOSITORY, discover(), params, settings, lambda _: params)
    given = load_yaml(REPOSITORY / "pipelines" / "methods" / f"{name}.yaml", REPOSITORY, text) if text else None
    return builder.build(name, given)


def each_make() -> list[Any]:
    """Every shipped method; those that differ from an earlier one in options alone are for slow tests."""
    makes, params = set(), []
    for name in METHODS:
        phases = method(name).phases
        make = tuple((p.name, p.data, p.start, p.repeat, tuple(sorted(dict(p.regularisers)))) for p in phases)
        params.append(pytest.param(name, marks=[pytest.mark.slow] if make in makes else []))
        makes.add(make)
    return params


def phase(
    regularisers: Sequence[Listed] = (),
    *,
    name: str = FINETUNE,
    start: str = "checkpoint",
    split: float = 1.0,
    times: int | None = None,
    **training: Any,
) -> Phase:
    """A phase as a YAML would give it."""
    listed = tuple((cls.name, options) for cls, options in entries(regularisers))
    repeat = None if times is None else RepeatConfig(times=times)
    protocol = TRAINING.model_copy(update=training)
    return Phase(name, DataConfig(split=split), start, repeat, None, listed, protocol, training)


def shortened(given: Phase, steps: int) -> Phase:
    """The phase under its settled protocol with at most ``steps`` optimiser steps of 4 examples and 2 members."""
    stack = compose.entries(discover(), given.regularisers)
    training, problems = compose.resolve_training(stack, given)
    assert not problems, problems
    changes: dict[str, Any] = {"batch_size": 4, "accumulation": 1}
    changes |= {"max_steps": steps} if training.epochs else {}
    repeat = given.repeat and given.repeat.model_copy(update={"times": min(2, given.repeat.times)})
    return replace(given, training=training.model_copy(update=changes), repeat=repeat)


@cache
def six_layers() -> ModelSource:
    """A tiny BERT with as many layers as the default encoder, for options that name layers."""
    folder = tiny_model_dir(scratch_folder(), "bert", num_hidden_layers=6)
    return resolve_model(EncoderConfig(name=str(folder)), Path("/"))


def names_layers(name: str) -> bool:
    """Whether an option lists layers by number, of which the default encoder has six and a tiny one two."""
    options = [vars(given) for phase in method(name).phases for _, given in phase.regularisers]
    return any(key.endswith("layers") and not isinstance(value, str) for one in options for key, value in one.items())


@dataclass
class Ran:
    """A finished phase: the inputs of its last member, what is stored of it, its members, the passes of their fits."""

    phase: Phase
    inputs: PhaseInputs
    tensors: dict[str, dict[str, torch.Tensor]]
    members: list[TrainedPhase]
    fits: list[tuple[float, float]]

    @cached_property
    def handed(self) -> Handed:
        """Through bytes, as the run store does it."""
        stored = {name: load(save(named)) for name, named in self.tensors.items()}
        return Handed(self.phase.name, stored.get("state", {}), stored.get("weights", {}))

    @property
    def weights(self) -> dict[str, torch.Tensor]:
        return self.tensors["weights"]

    @property
    def trained(self) -> TrainedPhase:
        return self.members[-1]

    @property
    def model(self) -> Any:
        return self.trained.trainee.model.eval()

    def logits(self, encoded: Encoded | None = None) -> Any:
        """Logits [n, K] of its own rows, or of others."""
        padding, kind = padding_of(self.inputs.tokenizer), self.inputs.setting.kind
        return predict(self.model, self.inputs.encoded if encoded is None else encoded, padding=padding, kind=kind)

    def answering(self, encoded: Encoded, tokenizer: Any, kind: str) -> Handed:
        """Return its answers and hidden states for rows, or those that a test has put there."""
        if self.handed.answers is not None:
            return self.handed
        model: Any = deepcopy(self.members[0].trainee.model)
        model.load_state_dict(model.state_dict() | self.handed.weights)
        outputs = torch.from_numpy(predict(model, encoded, padding=padding_of(tokenizer), kind=kind, hidden=True))
        answers, hidden = outputs.tensor_split([model.config.num_labels], 1)
        return replace(self.handed, answers=answers, hidden=hidden)


def trained(given: Phase, inputs: Sequence[PhaseInputs]) -> Ran:
    """Train every member of a phase, and merge them."""
    members, tensors, fits = [], [], []
    for one in inputs:
        with counted_fits() as counted:
            members.append(train(one))
        fits += counted
        tensors.append(outcome_tensors(one, members[-1], weights=True))
    merged = mean(tensors, float)[0] if given.repeat is not None else tensors[0]
    return Ran(given, inputs[-1], merged, members, fits)


def _keeps_head(before: Phase, given: Phase) -> bool:
    learns = before.data.labels or bool(before.teachers(discover()))
    return learns and before.seed is None and given.seed is None and before.data.task == given.data.task


@dataclass(frozen=True)
class Runner:
    """Where and on what the phases run; the keyword arguments of ``harness.Bench`` with the same meaning."""

    source: ModelSource
    kind: str = "classification"
    pair: bool = False
    labels: int = 2
    seed: int = 0
    rows: int = 20
    pooling: str = "head"
    separately: bool = False
    max_length: int = 32
    reading: Reading | None = None
    dropout: DropoutConfig | None = None
    keyword_segment: str | None = None
    #: The rows themselves, in the place of ``rows`` made ones.
    given: tuple[Example, ...] | None = None

    def run(self, phases: Sequence[Phase], *, steps: int = 4) -> dict[str, Ran]:
        """Every phase in order, each with at most ``steps`` steps."""
        done: dict[str, Ran] = {}
        for given in phases:
            done[given.name] = self.run_phase(shortened(given, steps), done)
        return done

    def run_phase(self, given: Phase, done: Mapping[str, Ran]) -> Ran:
        """One phase with all its members, merged."""
        return trained(given, [self.inputs(given, done, index) for index in range(given.members)])

    def inputs(self, given: Phase, done: Mapping[str, Ran], index: int = 0) -> PhaseInputs:
        """What one member of a phase is computed from."""
        other = given.data.task is not None
        labels = 3 if other else self.labels
        learns = given.data.labels or bool(given.teachers(discover()))
        kind = "classification" if other or not learns else self.kind
        pair = self.pair or self.separately or other
        tokenizer = load_tokenizer(self.source)
        rows = examples(self.rows, pair=pair, kind=kind, labels=labels) if self.given is None else list(self.given)
        if not given.data.labels:
            rows = [replace(row, label=0) for row in rows]
        vary = given.repeat.vary if given.repeat is not None else ()
        member = f"{given.name}-{index}"
        own, aside = split_rows(len(rows), given.data.split, self.seed, given.name, index if "split" in vary else 0)
        before = None if given.start == "checkpoint" else done[given.start]
        prompt = prompt_of(self.entries(given), labels, pair)
        read: dict[str, Any] = {"max_length": self.max_length, "prompt": prompt, "reading": self.reading}
        encoded = encode(rows, tokenizer, rows_per_example=2 if self.separately else 1, **read)
        read["keyword_segment"] = self.keyword_segment
        return PhaseInputs(
            entries=self.entries(given),
            setting=setting_of(given.training, kind, labels, self.seed, given.name, **read),
            streams={
                "noise": member if "noise" in vary else given.name,
                "order": member if "order" in vary else given.name,
                "head": f"head/{index}" if "head" in vary else "head",
            },
            source=self.source,
            tokenizer=tokenizer,
            encoded=encoded,
            unlabelled=encoded,
            train_rows=own,
            validation_rows=aside,
            labels=names_of(kind, labels),
            labelled=given.data.labels,
            examples=rows,
            device="cpu",
            pooling="mask" if prompt is not None else self.pooling,
            start=before.handed.weights if before is not None else None,
            start_head=before is None or _keeps_head(before.phase, given),
            handed={
                name: done[name].answering(encoded, tokenizer, kind)
                if what in ("answers", "hidden")
                else done[name].handed
                for entry in self.entries(given)
                for name, what in entry.declares.needs.items()
            },
        )

    def entries(self, given: Phase) -> list[compose.Entry]:
        return compose.active(compose.entries(discover(), given.regularisers))


def run_phase(
    regularisers: Sequence[Listed] = (),
    *,
    name: str = FINETUNE,
    training: TrainingConfig = TRAINING,
    start: Mapping[str, torch.Tensor] | None = None,
    start_head: bool = True,
    rows: Sequence[Example] | None = None,
    streams: Mapping[str, str] | None = None,
    architecture: str = "bert",
    **options: Any,
) -> Ran:
    """One phase to its end; ``start`` are weights by plain name, ``options`` those of :func:`runner`."""
    given = replace(phase(regularisers, name=name), training=training)
    own = runner(architecture, rows=24, given=None if rows is None else tuple(rows), **options)
    inputs = replace(own.inputs(given, {}), start=start, start_head=start_head)
    return trained(given, [inputs if streams is None else replace(inputs, streams=streams)])


def runner(architecture: str = "bert", *, masked_lm: bool = False, **options: Any) -> Runner:
    """A runner on the tiny checkpoint of ``architecture``."""
    pooling = {"pooling": EMBEDDERS[architecture]} if architecture in EMBEDDERS else {}
    return Runner(source_of(architecture, masked_lm), **{**pooling, **options})
