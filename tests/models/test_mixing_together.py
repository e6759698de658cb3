"""Mixes made together against mixes made one by one: the same weights, gradients and graph, in few operations."""

from __future__ import annotations

import gc
import weakref
from typing import Any, cast

import pytest
import torch
from torch import Tensor, nn
from torch.nn.utils import parametrize

from regft_core.models import mixing_together
from regft_core.models.mixing import WeightMixing
from regft_core.models.mixing_together import MixedTogether

#: Every form with every rank that it has.
FORMS = [("factored", 1), ("convex", 1), ("factored", 3), ("convex", 3), ("full_rank", 1)]
#: Inner dimensions are below 10, so two orders of a sum differ by a few 2^-24 of its terms, which are about 1.
ROUNDING = {"rtol": 1e-5, "atol": 1e-6}


class Layers(nn.Module):
    """Mixed weights of two shapes, one of them in three dimensions; ``spare`` is used in no pass."""

    def __init__(self) -> None:
        super().__init__()
        self.first, self.second, self.third, self.spare = (nn.Linear(6, 8) for _ in range(4))
        self.narrow, self.other = (nn.Linear(8, 6) for _ in range(2))
        self.raw = nn.Parameter(torch.randn(6, 2, 4))

    def forward(self, inputs: Tensor, again: bool = False) -> Tensor:
        hidden = self.narrow(self.first(inputs).tanh())
        hidden = self.other(self.second(hidden).tanh())
        hidden = self.third(hidden) if not again else self.third(self.narrow(self.first(hidden).tanh()))
        return hidden.tanh() + torch.einsum("bi,ijk->bjk", inputs, self.raw).flatten(1)


WEIGHTS = ("first.weight", "second.weight", "third.weight", "spare.weight", "narrow.weight", "other.weight", "raw")


class Case:
    """Layers with mixed weights; two cases of one form and rank are the same."""

    def __init__(self, form: str, rank: int, together: bool, asked: tuple[str, ...] = ("weights", "attention")) -> None:
        torch.manual_seed(1)
        generator = torch.Generator().manual_seed(0)
        self.model = Layers()
        self.mixings: dict[str, WeightMixing] = {}
        for name in WEIGHTS:
            path, _, attribute = name.rpartition(".")
            module = self.model.get_submodule(path)
            shape = getattr(module, attribute).shape
            pretrained = torch.randn(shape, generator=generator)
            mixing = WeightMixing(pretrained, rank=rank, form=form, std=0.3, generator=generator)
            parametrize.register_parametrization(module, attribute, mixing)
            self.mixings[name] = mixing
            self.raw(name).requires_grad_("weights" in asked)
            mixing.pretrained.requires_grad_("pretrained" in asked)
            for parameter in mixing.parameters():
                parameter.requires_grad_("attention" in asked)
        self.inputs = torch.randn(5, 6, generator=generator)
        self.together = MixedTogether(self.model, wanted=lambda: together)

    def raw(self, name: str) -> nn.Parameter:
        path, _, attribute = name.rpartition(".")
        views = cast(Any, self.model.get_submodule(path).parametrizations)
        return cast(nn.Parameter, views[attribute].original)

    def columns(self) -> dict[str, Tensor]:
        """W, W0 and attention of every weight, by name."""
        found: dict[str, Tensor] = {}
        for name, mixing in self.mixings.items():
            found |= {f"{name}/weight": self.raw(name), f"{name}/pretrained": mixing.pretrained}
            found |= {f"{name}/{key}": parameter for key, parameter in mixing.named_parameters()}
        return found

    def gradients(self, again: bool = False) -> tuple[Tensor, dict[str, Tensor | None]]:
        """What a pass returns and the gradients of all that asks for one, biases too."""
        named = {name: tensor for name, tensor in self.columns().items() if tensor.requires_grad}
        named |= {name: parameter for name, parameter in self.model.named_parameters() if name.endswith("bias")}
        output = self.model(self.inputs, again)
        found = torch.autograd.grad(output.square().sum(), list(named.values()), allow_unused=True)
        return output, dict(zip(named, found, strict=True))


def both(form: str, rank: int, *asked: str) -> tuple[Case, Case]:
    given = asked or ("weights", "attention")
    return Case(form, rank, True, given), Case(form, rank, False, given)


def summed_up(name: str) -> bool:
    """Whether a gradient is a sum over rows or columns, whose order may differ."""
    return name.endswith(("/a1", "/a2"))


def compare(one: dict[str, Tensor | None], other: dict[str, Tensor | None], *, bits: bool) -> None:
    assert set(one) == set(other)
    for name, value in one.items():
        expected = other[name]
        if value is None or expected is None:
            assert value is expected, name
        elif bits and not summed_up(name):
            assert torch.equal(value, expected), name
        else:
            assert torch.allclose(value, expected, **ROUNDING), name


@pytest.mark.parametrize("limit", [1, 100, 1 << 25])
@pytest.mark.parametrize(("form", "rank"), FORMS)
def test_mixes_and_gradients_are_those_of_one_by_one(
    form: str, rank: int, limit: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Every bit, but of sums: the attention's gradients, and the products of vectors at higher ranks."""
    monkeypatch.setattr(mixing_together, "STACK", limit)
    together, single = both(form, rank, "weights", "pretrained", "attention")
    assert len(together.together.stacks) == {1: 7, 100: 4, 1 << 25: 2}[limit]
    (output, found), (expected, wanted) = together.gradients(), single.gradients()
    assert torch.equal(output, expected) or (rank > 1 and torch.allclose(output, expected, **ROUNDING))
    assert any(summed_up(name) for name in found) == (form != "full_rank")
    compare(found, wanted, bits=rank == 1)


@pytest.mark.parametrize(("form", "rank"), FORMS)
@pytest.mark.parametrize("asked", [("weights",), ("attention",), ("pretrained",), ("pretrained", "attention")])
def test_only_what_asks_for_a_gradient_gets_one(form: str, rank: int, asked: tuple[str, ...]) -> None:
    together, single = both(form, rank, *asked)
    compare(together.gradients()[1], single.gradients()[1], bits=rank == 1)


def test_a_weight_that_is_not_used_has_no_gradient_rather_than_zeros() -> None:
    """An optimiser decays what has a gradient of zeros."""
    for case in both("factored", 1):
        found = case.gradients()[1]
        assert {name for name, value in found.items() if value is None} == {
            *("spare.bias", "spare.weight/weight", "spare.weight/a1", "spare.weight/a2")
        }


def test_the_mix_of_frozen_tensors_asks_for_nothing() -> None:
    """Else the backward pass would compute the gradient of a frozen layer's matrix only to drop it."""
    case = Case("factored", 1, True, asked=("weights",))
    case.raw("first.weight").requires_grad_(False)
    case.together.make()
    asking = {name for name, mixing in case.mixings.items() if cast(Any, mixing.made)[1].requires_grad}
    assert asking == {*WEIGHTS} - {"first.weight"}


def test_a_weight_that_is_used_twice_is_mixed_once() -> None:
    """As in ALBERT; the gradients of its uses are added before they are multiplied, not after, hence no equal bits."""
    together, single = both("factored", 1)
    (output, found), (expected, wanted) = together.gradients(again=True), single.gradients(again=True)
    assert torch.equal(output, expected)
    for name, value in found.items():
        assert value is wanted[name] or torch.allclose(value, wanted[name], **ROUNDING), name
    together.together.make()
    assert together.model.first.weight is together.model.first.weight


@pytest.mark.parametrize(("form", "rank"), FORMS)
def test_it_can_be_differentiated_twice(form: str, rank: int) -> None:
    def second(case: Case) -> dict[str, Tensor | None]:
        named = {name: tensor for name, tensor in case.columns().items() if not name.startswith("spare")}
        weights = [case.raw(name) for name in WEIGHTS if name != "spare.weight"]
        first = torch.autograd.grad(case.model(case.inputs).square().sum(), weights, create_graph=True)
        found = torch.autograd.grad(sum(slope.sin().sum() for slope in first), list(named.values()))
        return dict(zip(named, found, strict=True))

    together, single = (second(case) for case in both(form, rank, "weights", "pretrained", "attention"))
    for name, value in together.items():
        # A chain of a dozen products on the way, so several times the rounding of one.
        assert torch.allclose(cast(Tensor, value), cast(Tensor, single[name]), rtol=1e-4, atol=1e-4), name


@pytest.mark.parametrize(("form", "rank"), FORMS)
def test_coefficients_stand_until_attention_or_pretrained_weight_move(form: str, rank: int) -> None:
    together, single = both(form, rank, "weights")
    stacks = together.together.stacks
    together.gradients()
    before = [stack.rest for stack in stacks]
    with torch.no_grad():
        for case in (together, single):
            case.raw("second.weight").mul_(2)
    compare(together.gradients()[1], single.gradients()[1], bits=rank == 1)
    assert all(stack.rest is one for stack, one in zip(stacks, before, strict=True))
    for moved in ("attention", "pretrained"):
        with torch.no_grad():
            for case in (together, single):
                mixing = case.mixings["second.weight"]
                (mixing.pretrained if moved == "pretrained" else mixing.attention[0]).mul_(0.5)
        compare(together.gradients()[1], single.gradients()[1], bits=rank == 1)
        renewed = [stack.rest is not one for stack, one in zip(stacks, before, strict=True)]
        assert renewed == ["second.weight" in names_of(together, stack) for stack in stacks]
        before = [stack.rest for stack in stacks]


def names_of(case: Case, stack: Any) -> set[str]:
    return {name for name, mixing in case.mixings.items() if any(mixing is one for one in stack.mixings)}


@pytest.mark.parametrize(("form", "rank"), FORMS)
def test_what_an_evaluation_or_half_precision_computes_first_serves_training(form: str, rank: int) -> None:
    """Coefficients keep fp32 and can be used under autograd, wherever they were computed."""
    together, single = both(form, rank)
    with torch.inference_mode(), torch.autocast("cpu", dtype=torch.bfloat16):
        together.model(together.inputs)
    parts = [part for stack in together.together.stacks for part in (*stack.own, *stack.rest)]
    assert all(part.dtype == torch.float32 and not part.is_inference() for part in parts)
    compare(together.gradients()[1], single.gradients()[1], bits=rank == 1)


def test_a_weight_that_moves_before_the_backward_pass_is_an_error() -> None:
    for name in ("first.weight/weight", "first.weight/a1"):
        case = Case("factored", 1, True)
        loss = case.model(case.inputs).sum()
        with torch.no_grad():
            case.columns()[name].mul_(2)
        with pytest.raises(RuntimeError, match="modified by an inplace operation"):
            loss.backward()


def test_mixes_are_gone_after_a_pass_also_after_one_that_breaks_off() -> None:
    case = Case("factored", 1, True)
    seen: list[Any] = []
    case.model.first.register_forward_hook(lambda module, *_: seen.append(weakref.ref(module.weight)))
    loss = case.model(case.inputs).sum()
    assert all(mixing.made is None for mixing in case.mixings.values())
    loss.backward()
    del loss
    gc.collect()
    assert [one() for one in seen] == [None]
    with pytest.raises(RuntimeError):
        case.model(torch.zeros(5, 7))
    assert all(mixing.made is None for mixing in case.mixings.values())


def test_outside_of_a_pass_a_weight_is_mixed_by_itself_and_has_the_same_bits() -> None:
    case = Case("factored", 1, True)
    alone = case.model.first.weight
    case.together.make()
    assert case.model.first.weight is not alone
    assert torch.equal(case.model.first.weight, alone)
    # Another tensor than the task weight has a mix of its own.
    assert not torch.equal(case.mixings["first.weight"](torch.zeros(8, 6)), alone)
    case.together.drop()
    case.together.remove()
    case.model(case.inputs)
    assert not case.model._forward_pre_hooks
    assert not case.model._forward_hooks


@pytest.mark.parametrize(("form", "rank"), FORMS)
def test_operations_do_not_grow_with_the_number_of_matrices(form: str, rank: int) -> None:
    from torch.utils._python_dispatch import TorchDispatchMode

    class Count(TorchDispatchMode):
        count = 0

        def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
            self.count += not func.is_view
            return func(*args, **(kwargs or {}))

    class Many(nn.Module):
        def __init__(self, layers: int) -> None:
            super().__init__()
            self.layers = nn.ModuleList(nn.Linear(6, 6) for _ in range(layers))

        def forward(self) -> list[Tensor]:
            return [cast(Tensor, layer.weight) for layer in self.layers]

    def counted(layers: int) -> int:
        model = Many(layers)
        for layer in model.layers:
            mixing = WeightMixing(torch.ones(6, 6), rank=rank, form=form, std=0.1, generator=torch.Generator())
            mixing.requires_grad_(True)
            mixing.pretrained.requires_grad_(True)
            parametrize.register_parametrization(layer, "weight", mixing)
        MixedTogether(model, wanted=lambda: True)
        with Count() as operations:
            torch.autograd.backward(model(), [torch.ones(6, 6) for _ in range(layers)])
        return operations.count - layers  # each gradient that is given is made here

    assert counted(3) == counted(30)
    assert counted(3) < 40
