"""Composition: what runs together, in which order, and what is refused with which words."""

from __future__ import annotations

import itertools
from dataclasses import replace
from typing import Any

import pytest
import torch
from torch import Tensor

from regft_core.hooks import compose, refusals
from regft_core.hooks.base import Cost, Declares, Description, Regulariser
from regft_core.hooks.declare import DropoutWish, MainPass
from regft_core.hooks.registry import discover
from regft_core.schema import DropoutConfig
from regft_core.schema.method import Method, Phase, declared_cost
from regft_core.schema.methods import DataConfig
from regft_core.schema.tasks import TaskConfig
from regft_core.schema.training import EncoderConfig
from regft_core.training.step import Step
from tests.methods.cases import CASES, Case, task
from tests.methods.chain import method, phase
from tests.methods.harness import STILL, TRAINING, Bench, Listed, close, declaring, entries, gradients, same, watched
from tests.methods.test_kinds_of_hooks import Adder, renamed

#: Whatever fine-tunes alone, old or new.
ALONE = [case for case in CASES if case.final and not case.before]
ANY_PAIR = list(itertools.combinations(ALONE, 2))


def consistency(self: Regulariser, step: Step, main: MainPass) -> Tensor:
    """From a second pass: half the squared distance of its logits."""
    return 0.5 * (main.logits - step.forward("again", draw=1)).square().mean()


def norm(self: Regulariser, step: Step, main: MainPass) -> Tensor:
    """On the last hidden states of the plain pass."""
    return 0.25 * main.hidden.square().mean()


@torch.no_grad()
def add(self: Regulariser, trainee: Any) -> None:
    trainee.raw(trainee.sites.mixable[0]).add_(1.0)


@torch.no_grad()
def double(self: Regulariser, trainee: Any) -> None:
    trainee.raw(trainee.sites.mixable[0]).mul_(2.0)


CONSISTENCY: Listed = (declaring("consistency", {"terms": consistency}, description=Description(cost=Cost(2, 2))), {})
SILENT: Listed = (declaring("silent", {"terms": consistency}, active=False), {})
NORM: Listed = (declaring("hidden_norm", {"terms": norm}, needs_hidden=True), {})
EDITOR: Listed = (declaring("editor", {"edit_weights": add}, edits=("weights",)), {})
DOUBLER: Listed = (declaring("doubler", {"edit_weights": double}, edits=("weights",)), {})
#: Before 'editor' in the alphabet.
LATE_DOUBLER: Listed = (declaring("a_doubler", {"edit_weights": double}, edits=("weights",), edit_order=7), {})


@pytest.mark.parametrize(
    "pair",
    [
        pytest.param(pair, marks=[pytest.mark.slow] if number % 24 else [], id="+".join(case.name for case in pair))
        for number, pair in enumerate(ANY_PAIR)
    ],
)
def test_every_two_methods_make_a_step_or_are_refused_with_both_names(pair: tuple[Case, Case]) -> None:
    listed: list[Listed] = [(case.name, case.options.model_dump(exclude_unset=True)) for case in pair]
    problems = refusals.ownership_problems(entries(listed))
    problems += compose.negotiate_dropout(entries(listed), DropoutConfig(), None)[1]
    one = TRAINING.model_copy(update={"max_steps": 1})
    stepping = Phase("finetune", DataConfig(), "checkpoint", None, None, (), one, {})
    problems += refusals.prediction_problems(entries(listed), stepping)
    if problems:
        assert any(all(f"'{case.name}'" in problem for case in pair) or "dropout" in problem for problem in problems)
        return
    aside = any(case.phase.data.split < 1.0 for case in pair)
    first, second = (Bench(chosen, masked_lm=True, training=one, validation=aside) for chosen in (listed, listed[::-1]))
    names = [[r.name for r in run.stack.in_edit_order] for run in (first, second)]
    assert names[0] == names[1]
    assert same(first.train(), second.train())


def test_noise_in_chosen_passes_only() -> None:
    """HyPe in the distilled view leaves the other two as they were. It comes after the views that TDT builds."""
    logits = []
    for options in ({"scale": 0.0}, {"scale": 0.5, "passes": ["distilled"]}):
        run = Bench([("hype", options), ("tdt", {})])
        assert run.stack.in_edit_order[0].name == "tdt"
        step = run.step()
        passes = watched(step, lambda output: output.detach().chunk(3))
        run.stack.backward(step)
        logits.append(passes[0][-1])
    assert [torch.equal(*views) for views in zip(*logits, strict=True)] == [True, False, True]


def test_added_terms_compose_with_each_other() -> None:
    both = [CONSISTENCY, NORM]
    run, plain = Bench(both), Bench()
    total = run.stack.backward(run.step())
    step = plain.step()
    logits, hidden = step.forward(hidden=True)
    again = step.forward("again", draw=1)
    expected = step.task_loss(logits) + 0.5 * (logits - again).square().mean() + 0.25 * hidden.square().mean()
    assert float(total) == pytest.approx(float(expected.detach()), rel=1e-6)
    step.backward(expected)
    assert close(gradients(run), gradients(plain))
    assert same(Bench(both).train(), Bench(both[::-1]).train())
    assert declared_cost(entries(both)) == Cost(2, 2)


MIXING: Listed = ("weight_mixup", {"attention": "random"})
VIEW: Listed = (declaring("view", owns_weights=True), {})
HEAD_VIEW: Listed = (declaring("view", owns_weights=True, trains_encoder=False), {})
BILEVEL: Listed = ("weight_mixup", {"attention": "bilevel"})


SOLVER: Listed = (declaring("solver", freezes_encoder=True), {})
#: They leave the head no steps.
FITTED: Listed = (declaring("solver", {"fit": lambda *_: None}, freezes_encoder=True), {})
DRIVEN: Listed = (declaring("solver", {"backward": lambda *_: None}, freezes_encoder=True, passes=("own",)), {})


#: What stands beside each other, and what the refusal says; nothing where both are accepted.
PROMPTED: Listed = ("prompt_tuning", {"reads": "text"})
BESIDE: list[tuple[list[Listed], str]] = [
    ([CONSISTENCY, NORM, ("tdt", {})], "'consistency' adds to the loss of the plain pass, but 'tdt'"),
    ([CONSISTENCY, ("mask_tuning", {})], "'consistency' adds to the loss of the plain pass, but 'mask_tuning' owns"),
    ([SILENT, ("tdt", {})], ""),
    ([EDITOR, DOUBLER], "'editor' and 'doubler' both change the starting weights"),
    ([EDITOR, LATE_DOUBLER], ""),
    ([EDITOR, MIXING], ""),  # weights and structure are different things
    ([MIXING, VIEW], "'weight_mixup' and 'view' both own the weight view"),
    ([("pats", {}), (declaring("own", optimizer="own"), {})], "'pats' and 'own' both own the optimiser"),
    ([("label_smoothing", {}), (renamed("label_smoothing", "b"), {})], "'label_smoothing' and 'b' both own the task's"),
    ([("label_smoothing", {}), ("masked_lm", {})], "'label_smoothing' transforms the task's loss, but 'masked_lm'"),
    ([(Adder, {}), (renamed(Adder, "b"), {})], "'adder' and 'b' both own the gradient"),
    ([("prompt_tuning", {}), ("mask_tuning", {})], "by the positions of the batch, which 'prompt_tuning' moves"),
    # Its vectors are out of the last hidden states again, and inside the encoder: each failed in its first step.
    *(([PROMPTED, (name, {})], f"'{name}' acts at the positions of the batch") for name in ("cutoff", "lnsr")),
    *(([PROMPTED, other], "") for other in (("cutoff", {"kind": "feature"}), ("mask_tuning", {}), ("freelb", {}))),
    ([("lora", {}), ("r4f", {})], ""),
    ([("lora", {}), VIEW], "works on the encoder's trained weights"),
    # A view of a head that is solved already, or never trained, would do nothing.
    ([SOLVER, HEAD_VIEW], ""),
    ([FITTED, HEAD_VIEW], "'view' computes the head's weights from trained ones, but 'solver'"),
    ([DRIVEN, HEAD_VIEW], "'view' computes the head's weights from trained ones, but 'solver'"),
    # The virtual step of a search is one step along the gradient of the task's loss at the shared rate.
    *(
        ([BILEVEL, other], "changes the update of the weights, which 'weight_mixup' does not model")
        for other in (
            *((name, {}) for name in ("layerwise_decay", "child_tuning", "sage", "l2_sp", "pats")),
            ("l2_sp", {"form": "decoupled"}),
            (Adder, {}),
        )
    ),
    ([MIXING, ("pats", {})], ""),  # fine-tuning looks ahead at nothing
    *(([BILEVEL, (name, {})], "") for name in ("hype", "label_smoothing", "noisy_tune", "re_init", "weight_averaging")),
    ([BILEVEL, ("sage", {"multiplier": "none"})], ""),
]


@pytest.mark.parametrize(("listed", "problem"), BESIDE)
def test_what_may_stand_beside_each_other(listed: list[Listed], problem: str) -> None:
    problems = refusals.ownership_problems(entries(listed))
    assert any(problem in said for said in problems) if problem else problems == []


def test_what_tf32_erases_is_refused_and_marked_where_a_whole_method_is_checked() -> None:
    """Not only where the precision alone is looked at: the phase, the method and its marks pass it on."""
    registry, plain = discover(), method("hype_n")
    lossy = plain.finetune.training.model_copy(update={"allow_precision_loss": True})
    allowed = replace(plain, phases=(replace(plain.finetune, training=lossy),))
    for given, on, refused, marked in ((plain, False, 0, 0), (plain, True, 1, 0), (allowed, True, 0, 1)):
        assert len(compose.check_method(registry, given, None, tf32=on)) == refused
        marks = compose.degradations(registry, given, task("classification"), tf32=on)
        assert len(marks) == marked
    for listed, refused in ((("hype", {"scale": 0.1}), 0), (("weight_mixup", {}), 1)):  # finite differences
        assert len(compose.precision_problems(entries([listed]), TRAINING, tf32=True)[0]) == refused


def test_edits_follow_their_declared_order_not_their_names() -> None:
    plain, *edited = (
        run.trainee.raw(run.trainee.sites.mixable[0]).detach()
        for run in map(Bench, ([], [EDITOR, LATE_DOUBLER], [LATE_DOUBLER, EDITOR]))
    )
    assert all(torch.equal(weight, (plain + 1.0) * 2.0) for weight in edited)


def test_an_optimiser_is_that_of_its_owner() -> None:
    stack = entries([("pats", {})])
    training, problems = compose.resolve_training(stack, phase([("pats", {})]))
    assert (training.optimizer, problems) == ("adamax", [])
    assert compose.resolve_training(stack, phase([("pats", {})], optimizer="adamw"))[1]


def test_dropout_is_judged_by_the_protocol_that_the_phase_runs_under() -> None:
    """That of a phase on another task's rows is the other task's: check and marks took the cell's."""

    def still(listed: list[Listed]) -> Method:
        given = replace(phase(listed), training=TRAINING.model_copy(update={"dropout": STILL}), explicit={})
        return replace(method("vanilla"), phases=(given,))

    (refused,) = compose.check_method(discover(), still([("r_drop", {})]), task("classification"))
    (mark,) = compose.degradations(discover(), still([("r_drop", {}), ("hype", {})]), task("classification"))
    assert "without dropout" in refused
    assert "without dropout" in mark


class Picky(Regulariser):
    """Needs classes, and pairs in one input."""

    name = "picky"

    @classmethod
    def declare(cls, options: Any) -> Declares:
        marks = {kind: f"a substitute for {kind}" for kind in ("regression", "classification")}
        return Declares(
            description=Description(refused={"separately": "it swaps the two texts of an input"}, degraded=marks)
        )

    @classmethod
    def check_task(cls, options: Any, task: TaskConfig) -> list[str]:
        return ["it needs classes"] if task.kind == "regression" else []


def first_on(data: DataConfig) -> tuple[Method, dict[str, Any]]:
    """A method whose first phase has ``Picky`` and trains on ``data``, and the registry."""
    given = replace(phase(name="first"), data=data, regularisers=(("picky", Picky.Config()),))
    return replace(method("vanilla"), phases=(given, phase())), {"picky": Picky}


def test_a_phase_is_checked_and_marked_on_its_own_task_not_on_the_cells() -> None:
    shared = EncoderConfig(name="x", pooling="mean", pairs="separately")
    values, pairs = task("regression"), task("classification")
    single = pairs.model_copy(update={"columns": pairs.columns.model_copy(update={"text_pair": None})})
    tasks = {"values": values, "pairs": pairs, "single": single}

    def problems(own: str | None, cell: TaskConfig, known: Any = tasks) -> str:
        given, registry = first_on(DataConfig(task=own))
        return " ".join(compose.check_method(registry, given, cell, shared, known))

    assert "'picky' on the phase's task 'values': it needs classes" in problems("values", single)
    assert problems("single", values) == ""  # what holds of the cell's task is nothing to this phase
    assert "'picky' does not run with model.pairs: separately" in problems("pairs", single)
    assert problems("single", pairs) == ""
    assert "'picky' on this task: it needs classes" in problems(None, values)
    assert problems("values", values, {}) == ""  # a task whose own file is wrong: that is said there
    for own, mark in (("values", "a substitute for regression"), (None, "a substitute for classification")):
        given, registry = first_on(DataConfig(task=own))
        assert compose.degradations(registry, given, pairs, tasks)[0] == mark


def test_a_run_answers_for_the_labels_of_its_own_task_in_their_order() -> None:
    """A last phase on another task gave its outputs to the run's labels by their number, whatever they stood for."""
    given, cell = (
        replace(method("vanilla"), phases=(replace(phase(), data=DataConfig(task="far")),)),
        task("classification"),
    )
    turned = cell.model_copy(update={"labels": tuple(reversed(cell.labels or ()))})
    assert compose.check_method({}, given, cell, None, {"far": cell}) == []
    (problem,) = compose.check_method({}, given, cell, None, {"far": turned})
    assert "in this order" in problem


HYPE: Listed = ("hype", {})
ON = {side: (declaring("random_passes", dropout=DropoutWish(**{side: "on"})), {}) for side in ("hidden", "attention")}
NONE, SOME = DropoutConfig(hidden=0.0, attention=0.0), DropoutConfig(hidden=0.1, attention=0.2)


@pytest.mark.parametrize(
    ("listed", "shared", "own", "settled", "problem"),
    [
        ([HYPE], SOME, None, (0.0, 0.2), ""),
        ([("hype", {"hidden_dropout": "keep"})], DropoutConfig(), DropoutConfig(hidden=0.3), (0.3, "keep"), ""),
        ([HYPE], DropoutConfig(), DropoutConfig(hidden=0.1), None, "'hype' needs 0.0 but training.dropout sets it to"),
        ([HYPE, ON["hidden"]], DropoutConfig(), None, None, "'random_passes' needs it on but hype sets it to 0"),
        ([ON["hidden"]], NONE, None, None, "hidden dropout: 'random_passes' needs it on but the shared"),
        ([ON["attention"]], NONE, None, None, "attention dropout: 'random_passes' needs it on but the shared"),
        ([ON["attention"]], SOME, None, (0.1, 0.2), ""),
        ([ON["hidden"]], DropoutConfig(), None, ("keep", "keep"), ""),  # the checkpoint's own value
        ([ON["hidden"]], NONE, DropoutConfig(hidden=0.2), (0.2, 0.0), ""),
        ([ON["hidden"]], SOME, DropoutConfig(hidden=0.0), None, "hidden dropout: 'random_passes' needs it on"),
    ],
)
def test_dropout_is_negotiated(listed: list[Listed], shared: Any, own: Any, settled: Any, problem: str) -> None:
    dropout, problems = compose.negotiate_dropout(entries(listed), shared, own)
    if settled is not None:
        assert ((dropout.hidden, dropout.attention), problems) == (settled, [])
    else:
        assert problem in problems[0]


def test_variants_of_a_composition() -> None:
    registry = discover()
    for name, variant in (("hype_n", None), ("weight_mixup_released", "released"), ("weight_mixup", "paper")):
        assert compose.variants(method(name), registry) == variant
    search, final = method("weight_mixup_released").phases
    mixed = replace(final, regularisers=(*final.regularisers, ("tdt", registry["tdt"].Config())))
    assert compose.variants(replace(method("weight_mixup_released"), phases=(search, mixed)), registry) == "mixed"
