"""Every pair of kinds of hooks beside each other, against closed forms."""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from typing import Any, ClassVar

import pytest
import torch
from torch import Tensor

from regft_core.hooks import refusals
from regft_core.hooks.base import Declares, Regulariser
from regft_core.hooks.compose import Entry
from regft_core.hooks.declare import ClipSide
from regft_core.hooks.registry import discover
from regft_core.schema import StrictModel
from regft_core.training.step import Step
from tests.methods.cases import CASES, Case
from tests.methods.harness import TRAINING, Bench, Listed, calls_of, close, declaring, entries, gradients, masks_of

MATRIX = "bert.encoder.layer.0.intermediate.dense.weight"
TOP = "bert.encoder.layer.1.output.dense.weight"
ONE = TRAINING.model_copy(update={"max_steps": 1, "warmup_ratio": 0.0, "weight_decay": 0.0})
#: What trains on the task's loss in a way of its own: (regulariser, options, whether rows are set aside).
LOSSES: list[tuple[str, dict[str, Any], bool]] = [
    ("r_drop", {"alpha": 0.7}, False),
    ("cutoff", {}, False),
    ("cutoff", {"variant": "released"}, False),
    ("tdt", {}, False),
    ("freelb", {}, False),
    ("manifold_mixup", {}, False),
    ("sam", {}, False),
    ("mask_tuning", {}, False),
    ("mask_tuning", {"fill": "mask", "alpha": 0.0}, False),
    ("weight_mixup", {}, True),
    ("weight_mixup", {"inner_gradient": "reused"}, True),
    ("weight_mixup", {"variant": "released"}, True),
]


def renamed(given: str | type[Regulariser], name: str) -> type[Regulariser]:
    """The same regulariser under another name."""
    cls = discover()[given] if isinstance(given, str) else given
    return type(name.title(), (cls,), {"name": name})


def both_orders(listed: list[Listed]) -> tuple[list[Listed], list[Listed]]:
    """The regularisers under names whose alphabetical order is that of the list, and the reverse."""
    names = [f"n{index}" for index in range(len(listed))]
    return tuple(  # type: ignore[return-value]
        [(renamed(cls, name), options) for (cls, options), name in zip(listed, order, strict=True)]
        for order in (names, names[::-1])
    )


class SideConfig(StrictModel):
    side: ClipSide = "before_clip"
    by: float = 0.0


class Sided(Regulariser):
    Config = SideConfig

    @classmethod
    def declare(cls, options: Any) -> Declares:
        return Declares(gradients_at=options.side)


class Observer(Sided):
    """Keeps what it sees."""

    name = "observer"

    def observe_gradients(self, step: Step) -> None:
        named = ((name, step.gradient(name)) for name, _ in step.trainee.named_trainable())
        self.seen = {name: gradient.clone() for name, gradient in named if gradient is not None}


class Masker(Sided):
    """Multiplies every other entry."""

    name = "masker"
    start: ClassVar[int] = 0

    def gradient_masks(self, step: Step) -> Iterator[tuple[str, Tensor]]:
        for name, parameter in step.trainee.named_trainable():
            mask = torch.ones(parameter.numel())
            mask[self.start :: 2 + self.start] = self.options.by
            yield name, mask.view(parameter.shape)


class OtherMasker(Masker):
    name = "other_masker"
    start: ClassVar[int] = 1


def plus_one(self: Regulariser, step: Step) -> None:
    for _, parameter in step.trainee.named_trainable():
        if parameter.grad is not None:
            parameter.grad.add_(1.0)


Adder = declaring("adder", {"change_gradients": plus_one})


def around(listed: list[Listed], clip: float | None) -> tuple[Bench, dict[str, Tensor], dict[str, Tensor]]:
    """A bench after one step's gradient; the gradient as the passes left it, and as the optimiser gets it."""
    run = Bench(listed, training=ONE.model_copy(update={"clip_norm": clip}))
    step = run.step()
    run.stack.backward(step)
    plain = gradients(run)
    run.stack.before_clip(step)
    parameters = [p for _, p in run.trainee.named_trainable()]
    norm = torch.nn.utils.clip_grad_norm_(parameters, float("inf") if clip is None else clip)
    run.stack.after_clip(step, norm)
    return run, plain, gradients(run)


def norm_of(named: dict[str, Tensor]) -> float:
    return float(torch.cat([value.flatten() for value in named.values()]).norm())


@pytest.mark.parametrize("observes", ["before_clip", "after_clip"])
@pytest.mark.parametrize("masks", ["before_clip", "after_clip"])
@pytest.mark.parametrize("change", [False, True])
def test_observers_see_the_gradient_before_any_mask_or_change(observes: str, masks: str, change: bool) -> None:
    listed: list[Listed] = [(Observer, {"side": observes}), (Masker, {"side": masks})]
    listed += [(Adder, {})] if change else []
    for names in both_orders(listed):
        run, plain, stepped = around(names, clip=0.05)
        (observer,) = (r for r in run.stack.regularisers if isinstance(r, Observer))
        (masker,) = (r for r in run.stack.regularisers if isinstance(r, Masker))
        mask = dict(masker.gradient_masks(run.step()))
        changed = {name: value + 1.0 if change else value for name, value in plain.items()}
        masked = {name: changed[name] * mask[name] for name in plain}
        clipped = masked if masks == "before_clip" else changed
        factor = min(1.0, 0.05 / (norm_of(clipped) + 1e-6))
        for name, value in plain.items():
            seen = value * factor if observes == "after_clip" else value
            assert torch.allclose(observer.seen[name], seen, rtol=1e-5, atol=1e-9), name
            assert torch.allclose(stepped[name], masked[name] * factor, rtol=1e-5, atol=1e-9), name


@pytest.mark.parametrize(("first", "second"), itertools.product(["before_clip", "after_clip"], repeat=2))
def test_two_masks_multiply(first: str, second: str) -> None:
    listed: list[Listed] = [(Masker, {"side": first, "by": 0.5}), (OtherMasker, {"side": second, "by": 0.25})]
    for names in both_orders(listed):
        run, plain, stepped = around(names, clip=None)
        masks = [dict(r.gradient_masks(run.step())) for r in run.stack.regularisers]
        for name, value in plain.items():
            assert torch.allclose(stepped[name], value * masks[0][name] * masks[1][name], rtol=1e-6)


@pytest.mark.parametrize("grouped", [False, True])
def test_noise_is_that_of_pats_alone_where_the_mask_lets_entries_move(grouped: bool) -> None:
    """Elsewhere nothing would correct it."""
    handed = masks_of(Bench(), 0.3)
    masks = handed["fisher"].of("fisher")
    training = ONE.model_copy(update={"optimizer": "adamax", "learning_rate": 1e-30})
    listed: list[Listed] = [("pats", {})]
    alone = Bench(listed, training=training, grouped=grouped).train()
    both = Bench([*listed, ("child_tuning", {"mask": "fisher"})], handed=handed, training=training, grouped=grouped)
    start = {name: p.detach().clone() for name, p in both.trainee.named_raw()}
    together = both.train()
    for name in both.trainee.sites.perturbable:
        mask = masks[f"mask/{name}"]
        assert torch.equal(together[name], torch.where(mask, alone[name], start[name])), name
    assert not torch.equal(together[MATRIX], start[MATRIX])


def formula(step: Step, logits: Tensor, labels: Tensor | None = None) -> Tensor:
    """Cross-entropy against 0.8 of the label and 0.2 of the uniform distribution."""
    labels = step.batch.labels if labels is None else labels
    targets = 0.8 * torch.nn.functional.one_hot(labels, logits.shape[1]) + 0.2 / logits.shape[1]
    return -(targets * logits.log_softmax(-1)).sum(-1).mean()


@pytest.mark.parametrize(("name", "options", "aside"), LOSSES)
def test_every_pass_has_the_transformed_loss(name: str, options: dict[str, Any], aside: bool) -> None:
    """The loss and gradient of the method with the formula in place of its cross-entropies."""
    form: dict[str, Any] = {"masked_lm": True, "validation": aside, "phase": "search" if aside else "finetune"}
    smoothing: Listed = ("label_smoothing", {"smoothing": 0.2})
    assert refusals.ownership_problems(entries([smoothing, (name, options)])) == []
    found = []
    for listed in ([smoothing, (name, options)], [(name, options)]):
        run = Bench(listed, **form)  # type: ignore[arg-type]
        loop = run.loop()
        step = run.step(learning_rate=1e-3, validation=run.validation, optimizer=loop.optimizer)
        if len(listed) == 1:
            step.task_loss = lambda logits, labels=None, step=step: formula(step, logits, labels)  # type: ignore[method-assign]
        loss = run.stack.backward(step)
        found.append((float(loss), gradients(run), run.stack.hand(run.trainee)))
    (one, slopes, handed), (other, expected, wanted) = found
    assert one == pytest.approx(other, abs=1e-6)
    assert close(slopes, expected, atol=1e-5)
    assert close(handed, wanted, atol=1e-5)


@pytest.mark.parametrize(
    "case", [case for case in CASES if Entry(case.cls, case.options).program], ids=lambda case: case.key
)
def test_a_program_says_whether_it_trains_on_the_task(case: Case) -> None:
    run = case.bench()
    step = run.step(learning_rate=1e-3, validation=run.validation, optimizer=run.loop().optimizer)
    asked = calls_of(step, "task_loss", lambda *given: given)
    run.stack.backward(step)
    assert bool(asked) == case.declares.trains_on_task


PROGRAMS = [case for case in CASES if Entry(case.cls, case.options).program and not case.declares.virtual_step]


@pytest.mark.parametrize("accumulated", [False, True])
@pytest.mark.parametrize(
    "case", [case for case in PROGRAMS if not case.declares.freezes_encoder], ids=lambda case: case.key
)
def test_a_penalty_adds_its_gradient_to_that_of_any_step_program(case: Case, accumulated: bool) -> None:
    own: Listed = (case.name, case.options.model_dump(exclude_unset=True))
    pull: Listed = ("l2_sp", {"strength": 10.0})
    assert refusals.ownership_problems(entries([pull, own])) == []
    form: dict[str, Any] = {"masked_lm": True, "phase": case.phase.name}
    found, losses = [], []
    for listed in ([pull, own], [own]):
        run = Bench(listed, **form)
        with torch.no_grad():
            run.trainee.raw(MATRIX).add_(0.5)
        steps = [run.step(m, micro=m, share=0.5) for m in range(2)] if accumulated else [run.step()]
        losses.append(sum(float(run.stack.backward(step)) * step.share for step in steps))
        found.append(gradients(run))
        assert all(step.backward_passes == pytest.approx(case.description.cost.backward) for step in steps)
    difference = found[0][MATRIX] - found[1][MATRIX]
    assert torch.allclose(difference, torch.full_like(difference, 5.0), atol=1e-4)
    assert torch.equal(found[0][TOP], found[1][TOP])
    assert losses[0] - losses[1] == pytest.approx(0.5 * 10.0 * 0.25 * difference.numel(), rel=1e-4)


def test_layers_drawn_anew_are_not_pulled() -> None:
    drawn: Listed = ("re_init", {"layers": 1})
    found = []
    for listed in ([drawn, ("l2_sp", {"strength": 10.0})], [drawn]):
        run = Bench(listed)  # type: ignore[arg-type]
        with torch.no_grad():
            run.trainee.raw(MATRIX).add_(0.5)
            run.trainee.raw(TOP).add_(0.5)
        run.stack.backward(run.step())
        found.append(gradients(run))
    assert torch.allclose(found[0][MATRIX] - found[1][MATRIX], torch.tensor(5.0), atol=1e-4)
    assert torch.equal(found[0][TOP], found[1][TOP])
    decays = {n: group["weight_decay"] for group in Bench([drawn, ("l2_sp", {})]).loop().groups for n in group["names"]}
    assert (decays[MATRIX], decays[TOP]) == (0.0, TRAINING.weight_decay)


@pytest.mark.parametrize(
    "given", [("mixout", {}), ("weight_mixup", {"attention": "random"}), ("dps", {"mode": "mix"}), ("wise_ft", {})]
)
def test_what_is_mixed_with_a_drawn_layer_is_its_draw(given: Listed) -> None:
    run = Bench([("re_init", {"layers": 1}), given])
    (anchor,) = run.stack.anchors
    checkpoint = Bench().trainee
    assert torch.equal(run.trainee.anchor(anchor)[TOP], run.trainee.raw(TOP))
    assert not torch.equal(run.trainee.anchor(anchor)[TOP], checkpoint.raw(TOP))
    assert torch.equal(run.trainee.anchor(anchor)[MATRIX], checkpoint.raw(MATRIX))


@torch.no_grad()
def halve(self: Regulariser, step: Step) -> None:
    step.trainee.raw(MATRIX).mul_(0.5)


@torch.no_grad()
def add_one(self: Regulariser, step: Step) -> None:
    step.trainee.raw(MATRIX).add_(1.0)


def remember(self: Any, step: Step) -> None:
    self.seen = step.trainee.raw(MATRIX).detach().clone()


HOOKS = {"pull_weights": halve, "perturb_weights": add_one, "observe_weights": remember}


@pytest.mark.parametrize("order", [tuple(HOOKS), tuple(HOOKS)[::-1]])
def test_pulls_come_before_noise_and_averages_read_what_is_left(order: tuple[str, ...]) -> None:
    listed = [(declaring(f"n{place}", {hook: HOOKS[hook]}), {}) for place, hook in enumerate(order)]
    run = Bench(listed, training=ONE)  # type: ignore[arg-type]
    after = run.train()[MATRIX]
    assert torch.equal(after, Bench(training=ONE).train()[MATRIX] * 0.5 + 1.0)
    (reader,) = (r for r in run.stack.regularisers if hasattr(r, "seen"))
    assert torch.equal(reader.seen, after)
