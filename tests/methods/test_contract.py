"""The contract that every regulariser inherits by being found in ``regft_core/methods``.

Nothing here names a method: options come from the class or from ``pipelines/methods`` (``cases``),
so a new file is tested without an edit.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import suppress
from functools import cache
from typing import Any

import pytest
import torch
from pydantic import ValidationError

from regft_core.contract import check_method, laws
from regft_core.data.prompts import Reading
from regft_core.errors import ModelError
from regft_core.hooks import compose
from regft_core.hooks.base import implements
from regft_core.schema.method import declared_cost
from regft_core.training.stack import Stack
from tests.methods.cases import CASES, OTHER_CASES, REGISTRY, Case
from tests.methods.harness import TRAINING, Bench, calls_of, entries, gradients, same
from tests.tiny import ARCHITECTURES

FORMS: dict[str, dict[str, Any]] = {
    "single": {},
    "pair": {"pair": True},
    "regression": {"kind": "regression", "pair": True},
    "several": {"kind": "multi_label", "labels": 3},
    "mean": {"pooling": "mean"},
    "layers": {"pooling": "mean_last_four"},
    "separately": {"pair": True, "pooling": "mean", "separately": True},
    # Examples have 3 to 11 words, and so one window, two or three.
    "windows": {"pooling": "mean", "max_length": 8, "reading": Reading(windows=3, stride=2)},
    "windows-separately": {
        **{"pair": True, "pooling": "unit_mean", "separately": True},
        **{"max_length": 8, "reading": Reading("the ", windows=2, stride=1)},
    },
}
#: Six families of different make see every form of the task, the others one each.
FIRST = ("bert", "roberta", "electra", "xlnet", "deberta", "bart")
COMMON = ("single", "pair", "regression")
OTHERS = [name for name in ARCHITECTURES if name not in FIRST]
TASKS = [(name, form) for name in FIRST for form in COMMON] + [(n, COMMON[i % 3]) for i, n in enumerate(OTHERS)]
TASKS += [("bert", "several"), ("xlnet", "several"), ("qwen3", "single"), ("gemma3_text", "pair")]
#: A head on pooled vectors: padding on the left, two stacks, norms before blocks, a convolution.
HEADS = [("bert", "mean"), ("bart", "layers"), ("deberta-v2", "mean")] + [
    (n, "separately") for n in ("bert", "xlnet", "modernbert")
]
HEADS += [("bert", "windows"), ("xlnet", "windows-separately")]
PLACES = [*TASKS, *HEADS]
SHORT = {"max_steps": 2}


def zeros(cls: Any) -> list[dict[str, Any]]:
    """Options of strength 0: those that the class declares, and those of its controls."""
    found = [] if cls.off is None else [dict(cls.off)]
    for flip in cls.controls.values():
        with suppress(ValidationError):  # of other options than the defaults
            if dict(flip.options) not in found and not cls.declare(cls.Config.model_validate(flip.options)).active:
                found.append(dict(flip.options))
    return found


WITH_OFF = [(name, off) for name, cls in sorted(REGISTRY.items()) for off in zeros(cls)]
#: Where strength 0 leaves an empty stack, all encoders are alike.
FEW = [("bert", "single"), ("bert", "separately"), ("xlnet", "single"), ("bart", "pair"), ("bert", "several")]


def on(cases: Sequence[Case]) -> pytest.MarkDecorator:
    """The cases that a promise is about. No test is made of the others, so none is skipped."""
    return pytest.mark.parametrize("case", cases, ids=[case.key for case in cases])


def in_turn(number: int, place: tuple[str, str]) -> list[pytest.MarkDecorator]:
    """The mark of a slow test: quick ones see BERT on single texts, and some of the other places in turn."""
    chosen = place == PLACES[0] or (number + PLACES.index(place)) % 24 == 0
    return [] if chosen else [pytest.mark.slow]


def accepted(cases: Sequence[Case]) -> pytest.MarkDecorator:
    """These cases on BERT, and slowly on XLNet, wherever they are not refused; other tests try refusals."""
    chosen = [(case, name) for case in cases for name in ("bert", "xlnet") if not case.refused(name, {})]
    marks = {"bert": (), "xlnet": (pytest.mark.slow,)}
    params = [pytest.param(case, name, marks=marks[name], id=f"{case.key}-{name}") for case, name in chosen]
    return pytest.mark.parametrize(("case", "architecture"), params)


def short(case: Case, **changes: Any) -> Any:
    """The case's protocol with two steps; a phase that trains nothing stays one."""
    own = case.phase.training
    return own.model_copy(update={**(SHORT if own.epochs else {}), **changes})


@cache
def plain_weights(architecture: str, form: str, training: str) -> dict[str, torch.Tensor]:
    """Weights after plain fine-tuning."""
    protocol = type(TRAINING).model_validate_json(training)
    return Bench(architecture=architecture, training=protocol, masked_lm=True, **FORMS[form]).train()


@cache
def untouched(architecture: str, form: str, at_mask: bool) -> tuple[Bench, torch.Tensor]:
    """A plain bench to put weights into, and its logits before anything was done to it."""
    fresh = Bench(architecture=architecture, masked_lm=True, at_mask=at_mask, **FORMS[form])
    return fresh, fresh.logits()


@on([case for case in CASES if case.description.refused_architectures])
def test_a_family_on_which_it_does_not_run_is_refused(case: Case) -> None:
    for architecture in case.description.refused_architectures:
        with pytest.raises(ModelError) as caught:
            case.bench(architecture).train()
        assert caught.value.code in ("encoder-does-not-fit", "pooling-not-possible")


def off_at(place: tuple[str, str]) -> list[Any]:
    """The methods that have a strength, at a place. One that keeps its optimiser or its view takes part also then."""
    stacks = [(name, off, entries([(name, off)])) for name, off in WITH_OFF]
    return [
        pytest.param(name, off, *place, marks=in_turn(number, place))
        for number, (name, off, stack) in enumerate(stacks)
        if (compose.active(stack) or place in FEW)
        and place[0] not in stack[0].declares.description.refused_architectures
    ]


@pytest.mark.parametrize(("name", "off", "architecture", "form"), [each for place in PLACES for each in off_at(place)])
def test_strength_zero_is_plain_fine_tuning(name: str, off: dict[str, Any], architecture: str, form: str) -> None:
    listed, two = [(name, off)], TRAINING.model_copy(update=SHORT)
    bench = Bench(listed, architecture=architecture, training=two, masked_lm=True, **FORMS[form])
    plain = plain_weights(architecture, form, bench.training.model_dump_json())
    assert same(bench.train(), plain)


@pytest.mark.parametrize(
    ("case", "architecture", "form"),
    [
        pytest.param(case, *place, marks=in_turn(number, place), id="-".join((case.key, *place)))
        for number, case in enumerate(CASES)
        for place in PLACES
        if not case.refused(place[0], FORMS[place[1]])
    ],
)
def test_it_trains_is_inert_in_eval_and_leaves_a_plain_model(case: Case, architecture: str, form: str) -> None:
    declares, run = case.declares, case.bench(architecture, training=short(case), **FORMS[form])
    first, second = run.logits(), run.logits()
    assert torch.equal(first, second)
    fresh, plain = untouched(architecture, form, case.declares.answers_at_mask)
    is_kept = implements(case.cls, "rebuild")
    if is_kept:  # it will not be plain for long
        fresh = Bench(architecture=architecture, masked_lm=True, **FORMS[form])
    viewed = declares.owns_weights or declares.edits or is_kept
    if not viewed and case.phase.start == "checkpoint":
        assert torch.equal(first, plain)
    summed = calls_of(run.stack, "before_clip", lambda step: gradients(run))
    done = run.loop().train()
    assert len(done.curve) == (2 if case.phase.training.epochs else 0)
    assert all(summed) or not done.curve
    assert all(torch.isfinite(g).all() for step in summed for g in step.values())
    trained, kept = run.logits(), run.stack.keep(run.trainee)
    run.stack.export(run.trainee)
    if not case.final and declares.hands_over == "trained":
        fresh.trainee.load_weights(run.trainee.trained_weights(), head=True)
        assert all(torch.equal(raw, run.trainee.raw(name)) for name, raw in fresh.trainee.named_raw())
        return
    fresh.model.load_state_dict(run.trainee.plain_weights(), strict=True)
    if is_kept:
        Stack([(case.cls, case.options)], run.setting).rebuild(fresh.trainee, kept)
    # Only what is folded or rebuilt may differ: a folded weight rounds differently from the sum of two products.
    tolerance = 5e-6 if viewed else 0.0
    assert float((fresh.logits() - trained).abs().max()) <= tolerance


# ------------------------------------------------------------------ the laws of regft_core/contract


def maker(case: Case, architecture: str = "bert", training: Any = None, **form: Any) -> laws.Make:
    """The case's phase, built anew at each call."""
    return lambda **options: case.bench(architecture, training=training, **form).loop(**options)


def promises(case: Case) -> dict[str, tuple[Callable[[], str], str]]:
    """The promises of a case that ``regft test-method`` tries."""
    own = compose.Entry(case.cls, case.options)
    steps = {"max_steps": 4} if case.phase.training.epochs else {}

    def build(stack: Any, **changes: Any) -> laws.Make:
        assert list(stack) == [own]
        dropout = {"dropout": TRAINING.dropout}
        return maker(case, training=case.phase.training.model_copy(update={**dropout, **steps, **changes}))

    return check_method.promises(own, [own], case.phase.training, TRAINING.optimizer, build)


#: The others are tried over many families, by tests of this file.
QUICK = (
    "it draws from generators of its own",
    "killed and resumed it ends alike",
    "it runs the passes that it declares",
    "its fit runs the passes that it declares",
    "its passes are random where it says so",
    "padding does not change its loss",
    "its passes leave the weights as they were",
    "what it hands on and keeps can be stored",
    "it trains in bf16",
)


@pytest.mark.parametrize(
    ("promise", "case"),
    [
        pytest.param(promise, case, id=f"{promise}-{case.key}")
        for case in CASES
        for promise, (_, untried) in promises(case).items()
        if promise in QUICK and not untried
    ],
)
def test_it_keeps_the_promise(promise: str, case: Case) -> None:
    assert promises(case)[promise][0]() == ""


@pytest.mark.parametrize(("number", "case"), list(enumerate(OTHER_CASES)), ids=[case.name for case in OTHER_CASES])
def test_other_options_keep_the_laws_of_steps(number: int, case: Case) -> None:
    """Every second one as on a GPU, where many tensors are acted on at once."""
    make = maker(case, training=short(case, max_steps=4), grouped=number % 2 == 0)
    assert laws.resume(make, 3) == ""
    assert laws.passes(make, declared_cost([(case.cls, case.options)])) == ""
    if case.name != "weight_mixup" or case.options.variant != "released":  # it leaves the weights displaced
        assert laws.restored(make) == ""


@accepted(CASES)
def test_frozen_tensors_stay_as_they_are(case: Case, architecture: str) -> None:
    """Also under weight decay, in groups of their own, and with noise after the step."""
    run = case.bench(architecture, training=short(case, weight_decay=0.5, learning_rate=0.01, max_steps=3))
    sites, raw = run.trainee.sites, dict(run.trainee.named_raw())
    inside = [name for name in sites.perturbable if raw[name].requires_grad]
    matrix = next((name for name in inside if raw[name].dim() > 1), None)
    for name in (matrix, *inside[-1:], *sites.mixable[:1]):
        if name is not None:
            raw[name].requires_grad_(False)
    sites.word_embedding.weight.requires_grad_(False)
    attached = {f"attached.{name}": p for name, p in run.trainee.attached.named_parameters()}
    frozen = {name: p for name, p in {**raw, **attached}.items() if not p.requires_grad}
    free = {name: p.detach().clone() for name, p in {**raw, **attached}.items() if p.requires_grad}
    assert len(frozen) >= 2
    if case.declares.freezes_encoder:
        assert {name for name in raw if name not in sites.head} <= set(frozen)
    before = {name: p.detach().clone() for name, p in frozen.items()}
    loop = run.loop()
    listed = [p for group in loop.groups for p in group["params"]]
    assert not {id(p) for p in frozen.values()} & {id(p) for p in listed}
    accumulated = calls_of(run.stack, "before_clip", lambda _: [n for n, p in frozen.items() if p.grad is not None])
    loop.train()
    assert not any(accumulated)
    moved = [name for name, p in frozen.items() if not torch.equal(p, before[name])]
    assert not moved
    assert not loop.total or any(not torch.equal(raw.get(n, attached.get(n)), value) for n, value in free.items())


@on([case for case in CASES if case.declares.anchors])
def test_anchors_are_the_untouched_weights_wherever_the_phase_starts(case: Case) -> None:
    wanted = case.declares.anchors
    checkpoint = Bench(masked_lm=True).trainee.trained_weights()
    start = {name: value + 0.01 if value.is_floating_point() else value for name, value in checkpoint.items()}
    run = case.bench(training=short(case), start=start)
    run.loop().train()
    for anchor, weights in (("checkpoint", checkpoint), ("start", start)):
        if anchor in wanted:
            found = run.trainee.anchor(anchor)  # type: ignore[arg-type]
            assert all(torch.equal(value, weights[name]) for name, value in found.items())
            assert set(found) == set(run.trainee.plain_names)
