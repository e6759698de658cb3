"""Post-training and intermediate tasks: what passes from the first phase to fine-tuning."""

from __future__ import annotations

import pytest
import torch

from tests.methods.chain import NO_STEPS, Outcome, method, run_phase
from tests.methods.harness import TRAINING, Bench, examples, same

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


@pytest.mark.parametrize("selection", [None, "bernoulli"])
def test_a_share_of_fifteen_percent_of_the_ordinary_tokens_is_masked(
    selection: str | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    """With the options of the shipped method, over long rows, and by chance as in the stock script."""
    options = dict(method("post_training").phases[0].regularisers)["masked_lm"]
    given = options.model_dump(exclude_unset=True) | ({"selection": selection} if selection else {})
    made = Bench([("masked_lm", given)], phase="earlier", masked_lm=True)
    (regulariser,) = made.stack.regularisers
    drawn: list[tuple[torch.Tensor, torch.Tensor]] = []
    replacements = regulariser._replacements  # type: ignore[attr-defined]
    monkeypatch.setattr(regulariser, "_replacements", lambda step, at: drawn.append(at) or replacements(step, at))
    chosen = ordinary = 0
    for index in range(100):
        step = made.step(0)
        rows = torch.full((4, 62), 50)
        special = torch.zeros_like(rows)
        special[:, [0, -2, -1]] = 1
        mask = torch.ones_like(rows)
        mask[:, -1] = 0
        step.index = index
        step.batch = step.batch.__class__(
            **{
                **vars(step.batch),
                **{"input_ids": rows, "attention_mask": mask, "special_mask": special},
                "token_type_ids": torch.zeros_like(rows),
                "segment": torch.where(special == 1, -1, 0),
                "ordinary": ((59, 0),) * 4,
            }
        )
        regulariser.backward(step)
        assert not special[drawn[-1]].any()
        chosen, ordinary = chosen + drawn[-1][0].numel(), ordinary + int((special == 0).sum())
    # Of 59 tokens a fixed number is 9, by chance it is 15% of all.
    share = 9 / 59 if selection is None else 0.15
    spread = 0.0 if selection is None else 4 * (0.15 * 0.85 / ordinary) ** 0.5
    assert chosen / ordinary == pytest.approx(share, abs=spread + 1e-12)


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
