"""Post-training and intermediate tasks: what passes from the first phase to fine-tuning."""

from __future__ import annotations

import torch

from tests.methods.chain import NO_STEPS, Outcome, run_phase
from tests.methods.harness import TRAINING, examples, same

STEPS = TRAINING.model_copy(update={"epochs": 2})


def language_model(steps: bool = True) -> Outcome:
    options = {"mask_rate": 0.15, "replacement": "bert"}
    training = STEPS if steps else NO_STEPS
    return run_phase([("masked_lm", options)], name="language_model", training=training, masked_lm=True)


def test_fine_tuning_starts_from_the_encoder_of_the_first_phase_with_the_head_of_plain_fine_tuning() -> None:
    first = language_model()
    plain = run_phase(training=NO_STEPS, masked_lm=True)
    second = run_phase(training=NO_STEPS, masked_lm=True, start=first.weights, start_head=False)
    head = set(plain.trained.trainee.sites.head)
    for name, value in second.weights.items():
        assert torch.equal(value, plain.weights[name] if name in head else first.weights[name]), name
    moved = [name for name in second.weights if not torch.equal(second.weights[name], plain.weights[name])]
    assert "bert.encoder.layer.0.output.dense.weight" in moved


def test_a_pretrained_pooler_survives_the_masked_lm() -> None:
    options = {"mask_rate": 0.15}
    first = run_phase([("masked_lm", options)], name="language_model", training=STEPS)
    plain = run_phase(training=NO_STEPS)
    for part in ("weight", "bias"):
        name = f"bert.pooler.dense.{part}"
        assert torch.equal(first.weights[name], plain.weights[name])


def test_no_steps_in_the_first_phase_is_plain_fine_tuning() -> None:
    first = language_model(steps=False)
    assert same(
        run_phase(masked_lm=True, start=first.weights, start_head=False).weights, run_phase(masked_lm=True).weights
    )


def test_labels_do_not_enter_the_first_phase() -> None:
    options = {"mask_rate": 0.15}
    weights = [
        run_phase([("masked_lm", options)], name="language_model", training=STEPS, rows=rows).weights
        for rows in (examples(24), [row.__class__(row.idx, row.text, row.text_pair, 0) for row in examples(24)])
    ]
    assert same(*weights)


def test_the_head_of_an_intermediate_task_is_dropped() -> None:
    first = run_phase(name="intermediate", labels=3, rows=examples(24, pair=True, labels=3), training=STEPS)
    plain = run_phase(training=NO_STEPS)
    second = run_phase(training=NO_STEPS, start=first.weights, start_head=False)
    assert first.weights["classifier.weight"].shape[0] == 3
    assert torch.equal(second.weights["classifier.weight"], plain.weights["classifier.weight"])
    encoder = [name for name in second.weights if name.startswith("bert.")]
    assert all(torch.equal(second.weights[name], first.weights[name]) for name in encoder)
    assert not torch.equal(second.weights[encoder[0]], plain.weights[encoder[0]])
