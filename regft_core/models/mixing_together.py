"""The mixes of all weights made together, before each forward pass of a model, for devices that want few operations.

One by one (``models/mixing.py``) every matrix costs its operations in every pass, forward and backward. Here matrices
of one shape are a stack, which costs about as many for all of them, without a copy of all W or W0:

- coefficients of W and the pretrained part of the mix are computed once and kept for as long as the attention stands:
  a search moves it once in its five passes, fine-tuning never. They take twice the memory of the mixed weights
  (full rank: once, the attention is the coefficients).
- mixes are separate tensors; forward and the gradients of W and W0 are one operation over a list of them.
- gradients of the attention are matrix products of a stack, with one operand copied into the stack.

In a backward pass a stack waits for the gradients of all its members, so stacks are limited in size: what waits, and
what is copied, takes at most :data:`STACK` entries each (and for as many shapes as there are). All mixes exist
from the start of a forward pass on. In training they come to exist at once anyway, because the backward pass reads
them; an evaluation needs the memory of that many weights more.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, cast

import torch
from torch import Tensor, nn
from torch.nn.utils.parametrize import ParametrizationList

from regft_core.models.mixing import WeightMixing, mix

#: Entries of a stack: 128 MiB of fp32, a matrix for each of 8 layers of BERT-large where it is largest.
STACK = 1 << 25


class MixedTogether:
    """Makes the mixes of a model's weights before each of its forward passes and takes them away after it.

    Elsewhere (a weight that is read outside of a pass, a pass through a part of the model) each is made by itself.

    Args:
        model: has weights whose first view is a :class:`WeightMixing`.
        wanted: whether to act, asked before each forward pass.
    """

    def __init__(self, model: nn.Module, wanted: Callable[[], bool]) -> None:
        alike: dict[Any, list[ParametrizationList]] = {}
        for view in model.modules():
            if isinstance(view, ParametrizationList) and isinstance(mixing := view[0], WeightMixing):
                shape = mixing.shape[0], mixing.shape[1:].numel()
                alike.setdefault((shape, mixing.form, mixing.rank), []).append(view)
        self.stacks: list[_Stack] = []
        for ((d, k), form, rank), members in alike.items():
            height = max(1, STACK // (d * k))
            cuts = range(0, len(members), height)
            self.stacks += [_Stack(members[start : start + height], form, rank) for start in cuts]

        self._made = False

        def before(*_: Any) -> None:
            if wanted():
                self.make()

        def after(*_: Any) -> None:
            if self._made:
                self.drop()

        # Also after a pass that broke off: its mixes are not those of the next.
        self._handles = [
            model.register_forward_pre_hook(before),
            model.register_forward_hook(after, always_call=True),
        ]

    def remove(self) -> None:
        """Act no more, and keep nothing."""
        for handle in self._handles:
            handle.remove()
        self._handles.clear()
        self.stacks.clear()

    def make(self) -> None:
        """Make the mixes of the weights as they are now; each mixing gives its own out until :meth:`drop`."""
        self._made = True
        for stack in self.stacks:
            stack.make()

    def drop(self) -> None:
        """Forget mixed weights; the next pass mixes anew."""
        for stack in self.stacks:
            for mixing in stack.mixings:
                mixing.made = None
        self._made = False


class _Stack:
    """Weights of one shape, form and rank; as matrices ``[d, k]``."""

    def __init__(self, views: Sequence[ParametrizationList], form: str, rank: int) -> None:
        self.views, self.form, self.rank = list(views), form, rank
        self.mixings = [cast(WeightMixing, view[0]) for view in views]
        #: Coefficients of W and pretrained parts of the mixes.
        self.own: list[Tensor] = []
        self.rest: list[Tensor] = []
        self._made_from: list[Any] | None = None

    def make(self) -> None:
        weights = [cast(Tensor, view.original) for view in self.views]
        pretrained = [_matrix(mixing.pretrained) for mixing in self.mixings]
        attention = list(zip(*(mixing.attention for mixing in self.mixings), strict=True))
        constants = [tensor for column in (pretrained, *attention) for tensor in column]
        self._renew(pretrained, attention, [(tensor._version, tensor.data_ptr()) for tensor in constants])
        mixed: tuple[Tensor, ...] = _MixTogether.apply(self, *map(_matrix, weights), *constants)
        for mixing, weight, made in zip(self.mixings, weights, mixed, strict=True):
            mixing.made = weight, made.view(mixing.shape) if weight.dim() > 2 else made

    def _renew(self, pretrained: list[Tensor], attention: Sequence[Sequence[Tensor]], state: list[Any]) -> None:
        """Compute what the mixes are made with, unless the attention and W0 are in the state that it was made from."""
        if self._made_from == state:
            return
        self._made_from = None
        self.own, self.rest = [], []  # before the new ones are made, so that there are never both
        # The passes that they are kept for may be others than this one: an evaluation, half precision.
        with torch.inference_mode(False), torch.no_grad(), torch.autocast(pretrained[0].device.type, enabled=False):
            self.own, self.rest = _own(attention, self.form, self.rank), _kept(attention, self.form, self.rank)
            torch._foreach_mul_(self.rest, pretrained)
        self._made_from = state


class _MixTogether(torch.autograd.Function):
    """Mixes of a stack, with the bits of ``own * W + kept * W0``, and their gradients.

    Inputs are columns of as many tensors as the stack has members: all W, all W0, all a1, all a2.
    """

    @staticmethod
    def forward(ctx: Any, stack: _Stack, *inputs: Tensor) -> tuple[Tensor, ...]:
        count = len(stack.mixings)
        mixed = list(torch._foreach_mul(stack.own, inputs[:count]))
        torch._foreach_add_(mixed, stack.rest)
        ctx.save_for_backward(*inputs)
        ctx.stack, ctx.own = stack, stack.own
        # A mix that is not used has no gradient, as its weight has none then; neither has one of which all is frozen.
        ctx.set_materialize_grads(False)
        needed = ctx.needs_input_grad[1:]
        ctx.mark_non_differentiable(*(made for place, made in enumerate(mixed) if not any(needed[place::count])))
        return tuple(mixed)

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor | None) -> tuple[Tensor | None, ...]:
        count, needed = len(gradients), ctx.needs_input_grad[1:]
        inputs = ctx.saved_tensors  # raises where W or the attention has moved since the forward pass
        stack: _Stack = ctx.stack
        found: list[Tensor | None] = [None] * len(inputs)

        def asked(*columns: int) -> list[int]:
            """Members with a gradient that an input in one of the columns asks for."""
            used = (place for place, gradient in enumerate(gradients) if gradient is not None)
            return [place for place in used if any(needed[column * count + place] for column in columns)]

        def of(column: int, places: Sequence[int]) -> list[Tensor]:
            return [inputs[column * count + place] for place in places]

        def at(places: Sequence[int]) -> list[Tensor]:
            return [cast(Tensor, gradients[place]) for place in places]

        def give(column: int, places: Sequence[int], values: Sequence[Tensor]) -> None:
            for place, value in zip(places, values, strict=True):
                found[column * count + place] = value

        attention = range(2, len(inputs) // count)
        if torch.is_grad_enabled():  # somebody differentiates once more
            places = asked(0, 1, *attention)
            rows = [[of(column, [place])[0] for column in range(len(inputs) // count)] for place in places]
            mixed = [mix(row[0], row[1], row[2:], stack.form, stack.rank) for row in rows]
            wanted = [place for place, need in enumerate(needed) if need]
            again = torch.autograd.grad(
                mixed, [inputs[place] for place in wanted], at(places), create_graph=True, allow_unused=True
            )
            for place, value in zip(wanted, again, strict=True):
                found[place] = value
            return None, *found
        if places := asked(0):
            give(0, places, torch._foreach_mul(at(places), [ctx.own[place] for place in places]))
        if places := asked(1):
            kept = _kept([of(column, places) for column in attention], stack.form, stack.rank)
            torch._foreach_mul_(kept, at(places))
            give(1, places, kept)
        if places := asked(*attention):
            columns = [of(column, places) for column in attention]
            slopes = _attention_gradients(at(places), of(0, places), of(1, places), columns, stack)
            for column, values in zip(attention, slopes, strict=True):
                give(column, places, values)
        return None, *found


def _attention_gradients(
    gradients: list[Tensor],
    weights: list[Tensor],
    pretrained: list[Tensor],
    attention: Sequence[Sequence[Tensor]],
    stack: _Stack,
) -> list[Sequence[Tensor]]:
    """Gradients of all a1 and of all a2 (full rank: of all a) from the gradients of the mixes."""
    if stack.form == "full_rank":
        through = torch._foreach_mul(gradients, weights)
        torch._foreach_sub_(through, torch._foreach_mul(gradients, pretrained))
        return [list(through)]
    a1, a2 = (torch.stack(tuple(column)) for column in attention)
    through_own = _products(gradients, weights)
    if stack.form == "convex":
        through_own -= _products(gradients, pretrained)
    to_a1, to_a2 = torch.bmm(through_own, a2.mT), torch.bmm(a1.mT, through_own)
    del through_own  # one stack at a time
    if stack.form == "factored":
        through_kept = _products(gradients, pretrained)
        to_a1 -= torch.bmm(through_kept, (1 - a2).mT)
        to_a2 -= torch.bmm((1 - a1).mT, through_kept)
    if stack.rank > 1:
        to_a1 /= stack.rank
        to_a2 /= stack.rank
    return [to_a1.unbind(), to_a2.unbind()]


def _products(gradients: list[Tensor], matrices: list[Tensor]) -> Tensor:
    """Elementwise products, stacked."""
    found = torch.stack(gradients)
    torch._foreach_mul_(found.unbind(), matrices)
    return found


def _own(attention: Sequence[Sequence[Tensor]], form: str, rank: int) -> list[Tensor]:
    """Coefficients of all W."""
    if form == "full_rank":
        return [a.detach() for a in attention[0]]
    a1, a2 = (torch.stack(tuple(column)) for column in attention)
    return list(_product(a1, a2, rank).unbind())


def _kept(attention: Sequence[Sequence[Tensor]], form: str, rank: int) -> list[Tensor]:
    """Coefficients of all W0, in memory of their own."""
    if form == "full_rank":
        kept = list(torch._foreach_neg(list(attention[0])))
        torch._foreach_add_(kept, 1)
        return kept
    a1, a2 = (torch.stack(tuple(column)) for column in attention)
    if form == "convex":
        return list(_product(a1, a2, rank).neg_().add_(1).unbind())
    return list(_product(1 - a1, 1 - a2, rank).unbind())


def _product(a1: Tensor, a2: Tensor, rank: int) -> Tensor:
    """``a1 a2 / r`` of stacks ``[n, d, r]`` and ``[n, r, k]``; at rank 1 without a product that could be rounded."""
    return a1 * a2 if rank == 1 else torch.bmm(a1, a2).div_(rank)


def _matrix(tensor: Tensor) -> Tensor:
    return tensor if tensor.dim() == 2 else tensor.flatten(1)
