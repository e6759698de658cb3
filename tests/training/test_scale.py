"""The scale of a regression: training on a * y + b gives a * prediction + b, whatever the method and the head."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cache
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import torch

from regft_core.data.batches import padding_of
from regft_core.data.encode import encode
from regft_core.errors import RunFailed
from regft_core.evaluate.logits import predict
from regft_core.hooks.registry import discover
from regft_core.kinds.regression import Scale
from regft_core.models.load import load_classifier
from regft_core.runs.epoch_scores import judge, validation_score
from regft_core.runs.training_run import PhaseInputs, outcome_tensors, train
from regft_core.schema import DropoutConfig
from regft_core.schema.method import FINETUNE, Phase
from regft_core.schema.methods import RepeatConfig
from regft_core.training.loop import EpochScores
from regft_core.training.stack import Stack
from regft_core.training.trainee import Trainee
from tests.methods.cases import task
from tests.methods.chain import METHODS, Ran, Runner, method, names_layers, phase, runner, six_layers
from tests.methods.harness import MAKES, NO_STEPS, examples, source_of
from tests.tiny import ARCHITECTURES, EMBEDDERS

REGISTRY = discover()
#: (a, b) of the targets a * y + b; y goes from 0 to 5.
UNITS = [(1e-6, 0.0), (1e5, 7e4), (3e3, -5e5)]
TEXTS = examples(7, pair=True, kind="regression")


@dataclass(frozen=True)
class InUnit(Runner):
    """Runs on the targets a * y + b of a regression."""

    a: float = 1.0
    b: float = 0.0

    def inputs(self, given: Phase, done: Mapping[str, Ran], index: int = 0) -> PhaseInputs:
        inputs = super().inputs(given, done, index)
        if inputs.setting.kind != "regression":
            return inputs
        rows = [replace(row, label=self.a * row.label + self.b) for row in inputs.examples]
        encoded = replace(inputs.encoded, labels=[row.label for row in rows])
        setting = replace(inputs.setting, value_range=(self.b, 5 * self.a + self.b))
        return replace(inputs, examples=rows, encoded=encoded, setting=setting)


def in_unit(of: Runner, a: float = 1.0, b: float = 0.0) -> InUnit:
    return InUnit(**{**vars(of), "kind": "regression", "pair": True, "a": a, "b": b})


def answers(of: InUnit, phases: Sequence[Phase], steps: int = 3) -> Any:
    """Predictions [n] of new texts by what is stored of a run, as an evaluation makes them."""
    done = of.run(phases, steps=steps)
    return stored_answers(of.inputs(done[FINETUNE].phase, done), done[FINETUNE].tensors)


def stored_answers(inputs: PhaseInputs, tensors: Mapping[str, Mapping[str, torch.Tensor]], **options: Any) -> Any:
    stack, kept = Stack(inputs.entries, inputs.setting), dict(tensors.get("kept", {}))
    each = inputs.encoded.rows_per_example
    model = load_classifier(
        inputs.source,
        kind="regression",
        labels=None,
        dropout=DropoutConfig(),
        head_seed=1,
        pooling=inputs.pooling,
        rows_per_example=each,
    )
    model.load_state_dict(tensors["weights"])
    trainee = Trainee(model.eval(), inputs.tokenizer, inputs.source, 0, FINETUNE)
    stack.rebuild(trainee, kept)
    if stack.predictor is not None:
        return stack.predict(trainee, kept, TEXTS)[:, 0].astype(np.float64)
    encoded = encode(TEXTS, inputs.tokenizer, 32, rows_per_example=each, reading=inputs.setting.reading)
    padding = padding_of(inputs.tokenizer)
    padded = {"padding": padding}
    return predict(trainee.model, encoded, kind="regression", **padded, **options)[:, 0].astype(np.float64)


def covering() -> list[str]:
    """Methods of the repository in which every regulariser that takes values occurs."""
    chosen, seen = [], set()
    for name in sorted(METHODS, key=lambda name: (len(method(name).phases), name)):
        listed = [(REGISTRY[r], options) for given in method(name).phases for r, options in given.regularisers]
        classes = {cls.name for cls, options in listed if cls.declare(options).active}
        refused = any(cls.check_task(options, task("regression")) for cls, options in listed)
        at_mask = any(cls.declare(options).answers_at_mask for cls, options in listed)
        if not (refused or at_mask) and (not chosen or classes - seen):
            chosen.append(name)
            seen |= classes
    return chosen


@cache
def of_method(name: str) -> Runner:
    return Runner(six_layers() if names_layers(name) else source_of("bert"))


@pytest.mark.parametrize("name", covering())
def test_every_method_answers_in_the_unit_of_the_targets(name: str) -> None:
    a, b = 3e4, -2.5e5
    plain = answers(in_unit(of_method(name)), method(name).phases)
    other = answers(in_unit(of_method(name), a, b), method(name).phases)
    assert other == pytest.approx(a * plain + b, abs=3e-3 * a)
    assert plain.std() > 0 or name == "majority"


HEADS = [*((name, "head") for name in ARCHITECTURES), *EMBEDDERS.items(), ("bert", "mean"), ("bert", "unit_mean")]
HEADS += [("bert", "cls"), ("bart", "last")]


@pytest.mark.parametrize(
    ("architecture", "pooling", "unit"),
    [
        pytest.param(*head, UNITS[number % 3], marks=[] if head[0] in MAKES else [pytest.mark.slow])
        for number, head in enumerate(HEADS)
    ],
)
def test_every_head_answers_in_the_unit_of_the_targets(architecture: str, pooling: str, unit: Any) -> None:
    a, b = unit
    of = runner(architecture, pooling=pooling)
    plain, other = (answers(in_unit(of, *given), [phase()]) for given in ((1.0, 0.0), unit))
    assert plain.std() > 0
    assert other == pytest.approx(a * plain + b, abs=2e-3 * a)


def test_the_scale_is_that_of_the_training_rows_and_no_steps_answer_their_mean() -> None:
    of = in_unit(runner(), 1e5, 7e4)
    given = replace(phase(split=0.5), training=NO_STEPS)
    inputs = of.inputs(given, {})
    targets = np.array([inputs.encoded.labels[row] for row in inputs.train_rows])
    assert inputs.validation_rows
    trained = train(inputs)
    assert trained.trainee.scale == Scale(targets.mean(), targets.std())
    stored = outcome_tensors(inputs, trained, weights=True)
    drawn = trained.trainee.model.classifier.weight.detach()
    assert torch.allclose(stored["weights"]["classifier.weight"], drawn * targets.std())
    assert stored_answers(inputs, stored).mean() == pytest.approx(targets.mean(), abs=targets.std())


def test_equal_targets_are_learned_and_answered() -> None:
    answered = answers(in_unit(runner(), 0.0, 1.9e5), [phase()], steps=20)
    assert answered == pytest.approx(np.full(7, 1.9e5), abs=1.0)


def test_a_phase_starts_from_the_answers_of_the_one_before() -> None:
    of = in_unit(runner(), 1e5, 7e4)
    first = of.run([phase(name="first")])["first"]
    last = replace(phase(split=0.5, start="first"), training=NO_STEPS)  # other rows, so another scale
    inputs = of.inputs(last, {"first": first})
    trained = train(inputs)
    assert trained.trainee.scale != of.inputs(phase(), {}).target_scale()
    stored = outcome_tensors(inputs, trained, weights=True)
    before = stored_answers(inputs, {"weights": first.tensors["weights"]})
    assert stored_answers(inputs, stored) == pytest.approx(before, abs=1.0)


def test_members_with_rows_of_their_own_are_averaged_in_the_unit_of_the_targets() -> None:
    of = in_unit(runner(), 1e5, 7e4)
    given = replace(phase(split=0.5), repeat=RepeatConfig(times=2, vary=("split",)))
    done = of.run([given])[FINETUNE]
    scales = {member.trainee.scale for member in done.members}
    assert len(scales) == 2
    heads = [outcome_tensors(of.inputs(given, {}, 0), member, weights=True)["weights"] for member in done.members]
    mean = sum(head["classifier.bias"].double() for head in heads) / 2
    assert done.tensors["weights"]["classifier.bias"].item() == pytest.approx(mean.item(), rel=1e-6)


def test_epochs_and_members_are_judged_in_the_unit_of_the_targets() -> None:
    of = in_unit(runner(), 1e5, 7e4)
    inputs = of.inputs(phase(split=0.5), {})
    rows = [replace(row, label=1e5 * row.label + 7e4) for row in TEXTS]
    about = {"kind": "regression", "labels": None, "metrics": ["mse"], "primary": "mse", "positive_label": None}
    of_phase: Any = SimpleNamespace(
        run=SimpleNamespace(task=about, device="cpu"),
        training=inputs.setting.training,
        tokenizer=inputs.tokenizer,
        encode=lambda texts: encode(texts, inputs.tokenizer, 32),
    )
    trained = train(inputs, looks=[EpochScores("watched", judge(of_phase, rows))])
    stored = outcome_tensors(inputs, trained, weights=True)
    gold = np.array([row.label for row in rows])
    error = np.square(gold - stored_answers(inputs, stored)).mean()
    assert trained.looks[0].scores[-1][1] == pytest.approx(-error, rel=1e-4)
    shares = [inputs.encoded.labels[row] for row in inputs.validation_rows]
    assert -validation_score(inputs, stored, about) < 3 * np.var(shares)


@pytest.mark.parametrize("precision", ["bf16", "fp16"])
def test_large_values_are_answered_in_half_precision(precision: str) -> None:
    of = in_unit(runner(), 1e5, 7e4)
    done = of.run([phase()])[FINETUNE]
    inputs = of.inputs(done.phase, {})
    exact = stored_answers(inputs, done.tensors)
    assert stored_answers(inputs, done.tensors, precision=precision) == pytest.approx(exact, abs=0.05 * 1.5e5)
    assert len({float(value) for value in stored_answers(inputs, done.tensors, precision=precision)}) == 7


@pytest.mark.parametrize(
    ("targets", "code"),
    [
        ([1e9, 1e9 + 1e-3], "targets-too-close"),
        ([1.0, 1e31], "targets-out-of-range"),
        ([0.0, 1e-31], "targets-out-of-range"),
    ],
)
def test_targets_that_float32_cannot_tell_apart_are_refused(targets: list[float], code: str) -> None:
    with pytest.raises(RunFailed) as refused:
        Scale.of(targets)
    assert refused.value.code == code
