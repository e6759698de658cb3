"""Laws of a phase with any regulariser, tried on a phase that is ready to train; ``check_method.promises`` lists them.

Each takes ``make``, which builds the phase anew and returns its loop, and returns what is wrong, or nothing.
"""

from __future__ import annotations

import json
import math
import traceback
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import replace
from pathlib import Path
from typing import Any

import torch
from torch import Tensor
from torch.overrides import TorchFunctionMode

from regft_core.data.batches import Batch
from regft_core.schema.method import Cost
from regft_core.training.loop import Loop
from regft_core.training.stack import Stack
from regft_core.training.step import FitData, Step
from regft_core.training.trainee import Trainee

Make = Callable[..., Loop]
#: Functions of torch that draw random numbers; dropout is not among them, since every pass seeds it.
DRAWS = {
    *("bernoulli", "multinomial", "normal", "poisson", "rand", "rand_like", "randint", "randint_like", "randn"),
    *("randn_like", "randperm", "bernoulli_", "cauchy_", "exponential_", "geometric_", "log_normal_", "normal_"),
    *("random_", "uniform_", "rrelu", "rrelu_"),
}
#: How far a loss may move when a batch has more padding: products of other shapes round otherwise.
PADDING_TOLERANCE = 1e-4
#: How far weights at hardly any strength may be from those of plain fine-tuning, as a share of the way that it goes.
LIMIT_TOLERANCE = 1e-2


def repeats(make: Make) -> str:
    return "" if same(left(make()), left(make())) else "two trainings with one seed leave other tensors"


def inert(make: Make) -> str:
    loop = make()
    loop.train()
    batch, model = loop.stream.batch(0), loop.trainee.model.eval()
    inputs = {n: v for n, v in batch.model_inputs().items() if n != "token_type_ids" or loop.trainee.sites.token_types}
    with torch.no_grad():
        first, second = model(**inputs).logits, model(**inputs).logits
    return "" if torch.equal(first, second) else "two passes over one batch differ in evaluation"


def changes(make: Make, plain: Make) -> str:
    unchanged = same(left(make()), left(plain()))
    return "its weights are those of plain fine-tuning, and it hands on and keeps nothing" if unchanged else ""


def zero(make_off: Make, plain: Make) -> str:
    """At strength 0 the weights are those of plain fine-tuning with the same dropout and optimiser, bit for bit."""
    ours, theirs = left(make_off()), left(plain())
    differing = [name for name in theirs if name not in ours or not torch.equal(ours[name], theirs[name])]
    return f"{len(differing)} tensors differ, the first is {differing[0]}" if differing else ""


def limit(make_near: Make, plain: Make) -> str:
    """With hardly any strength a run ends close to plain fine-tuning.

    Both must be smooth: no dropout, clipping or weight decay, and steps in proportion to the gradient (``epsilon``).
    """
    start = {name: value.clone() for name, value in plain().trainee.plain_weights().items()}
    ours, theirs = left(make_near()), left(plain())

    def distance(weights: Mapping[str, Tensor]) -> float:
        return math.sqrt(sum(float((weights[n].double() - theirs[n].double()).square().sum()) for n in theirs))

    apart, way = distance(ours), distance(start)
    share = f"{apart / way:.2g} of the way of plain fine-tuning from where that ends" if way else ""
    return "" if apart <= LIMIT_TOLERANCE * way else f"with hardly any strength it ends {share}"


def trains(make: Make) -> str:
    wrong = [name for name, value in left(make()).items() if not value.isfinite().all()]
    return f"{wrong[0]} is not finite after training" if wrong else ""


def passes(make: Make, declared: Cost) -> str:
    done = make().train()
    counted = done.forward_passes / done.batches, done.backward_passes / done.batches
    return _as_declared("a step runs", counted, declared)


def fit_passes(make: Make, declared: Cost) -> str:
    with counted_fits() as counted:
        make()
    return _as_declared("per row fit runs", counted[-1], declared)  # before it are those of earlier phases


def _as_declared(runs: str, passes: tuple[float, float], declared: Cost) -> str:
    wanted = declared.forward, declared.backward
    if all(math.isclose(*pair, rel_tol=1e-6) for pair in zip(passes, wanted, strict=True)):
        return ""
    return "{} {:g} forward and {:g} backward passes; declared: {:g} and {:g}".format(runs, *passes, *wanted)


@contextmanager
def counted_fits() -> Iterator[list[tuple[float, float]]]:
    """Forward and backward passes of the encoder per row, in the fit of every stack within the block."""
    counts, plain = list[tuple[float, float]](), Stack.fit

    def fit(self: Stack, trainee: Trainee, data: FitData) -> None:
        seen, texts = {"forward": 0, "backward": 0}, data.stream.encoded.rows_per_example

        def count(_module: Any, _args: Any, output: Any) -> None:
            rows = output[0].shape[0] // texts
            seen["forward"] += rows
            if output[0].requires_grad:
                output[0].register_hook(lambda _: seen.update(backward=seen["backward"] + rows))

        encoder: Any = trainee.model.base_model
        with encoder.register_forward_hook(count):
            plain(self, trainee, data)
        counts.append((seen["forward"] / len(data.stream.rows), seen["backward"] / len(data.stream.rows)))

    Stack.fit = fit  # type: ignore[method-assign]
    try:
        yield counts
    finally:
        Stack.fit = plain  # type: ignore[method-assign]


def random_passes(make: Make, declared: bool) -> str:
    """Two plain passes over one batch, away from the start, differ where that is ``declared``; without dropout."""
    loop = make()
    generator = torch.Generator().manual_seed(7)
    with torch.no_grad():
        for _, parameter in loop.trainee.named_trainable():
            parameter.add_(0.05 * torch.randn(parameter.shape, generator=generator))
        logits = [first_step(loop).forward(draw=draw) for draw in (0, 1)]
    differ = not torch.equal(*logits)
    if differ == declared:
        return ""
    return f"two passes over one batch {'differ' if differ else 'agree'} without dropout; declared: {declared}"


def own_draws(make: Make, folder: Path) -> str:
    """Files of ``folder`` draw from generators of their own, not from torch's global one, which others draw from."""
    with _GlobalDraws(folder) as watch:
        make().train()
    return "; ".join(watch.places)


def padding(make: Make) -> str:
    """The loss of a batch is the same when it is padded further. The phase must have no dropout."""
    losses = []
    for columns in (0, 7):
        loop = make()
        step = first_step(loop)
        step.batch = widened(step.batch, columns, loop.trainee.tokenizer.pad_token_id or 0)
        losses.append(float(loop.stack.backward(step)))
    if abs(losses[0] - losses[1]) <= PADDING_TOLERANCE:
        return ""
    return f"the loss of one batch is {losses[0]:.5g}, and {losses[1]:.5g} with 7 more columns of padding"


def resume(make: Make, at: int) -> str:
    """A run that is killed after ``at`` steps and resumed from its checkpoint ends with the same bits."""
    whole, memory = make(), Memory()
    whole.train()

    def stop(step: int, *_: Any) -> None:
        if step == at:
            raise Stopped

    with suppress(Stopped):
        make(checkpointer=memory, checkpoint_seconds=0.0, progress=stop).train()
    resumed = make(checkpointer=memory)
    resumed.train()
    done = [{"weights": loop.trainee.state(), **_stored(loop)} for loop in (whole, resumed)]
    differing = [what for what in done[0] if not same(done[0][what], done[1][what])]
    if whole.stack.diagnostics().values != resumed.stack.diagnostics().values:
        differing.append("diagnostics")
    if not differing:
        return ""
    return f"killed after step {at} and resumed, a run ends with other {', '.join(differing)}; state() holds too little"


def restored(make: Make) -> str:
    """The passes of a step leave weights and buffers bit for bit as they were: the optimiser alone moves them."""
    loop = make()
    step = first_step(loop)

    def bits() -> dict[str, Tensor]:
        named = (*loop.trainee.named_raw(), *loop.trainee.model.named_buffers())
        return {name: tensor.detach().clone() for name, tensor in named}

    before = bits()
    loop.stack.backward(step)
    moved = [name for name, tensor in bits().items() if name not in before or not torch.equal(tensor, before[name])]
    return f"the passes of a step changed {len(moved)} tensors, the first is {moved[0]}" if moved else ""


def storable(make: Make) -> str:
    """Tensors that are handed on, kept and saved are finite tensors that safetensors holds."""
    from safetensors.torch import load, save

    loop = make()
    loop.train()
    for hook, named in _stored(loop).items():
        if wrong := [name for name, value in named.items() if not isinstance(value, Tensor)]:
            return f"{hook} gives {wrong[0]}, which is no tensor"
        if wrong := [name for name, value in named.items() if not value.isfinite().all()]:
            return f"{hook} gives {wrong[0]}, which is not finite"
        contiguous = {name: tensor.detach().contiguous() for name, tensor in named.items()}
        if not same(load(save(contiguous)), contiguous):
            return f"{hook} gives tensors that safetensors does not hold"
    return ""


def left(loop: Loop) -> dict[str, Tensor]:
    loop.train()
    stack, trainee = loop.stack, loop.trainee
    parts = {"hand()": stack.hand(trainee), "keep()": stack.keep(trainee), "decision()": stack.decision()}
    more = {f"{hook} {name}": value for hook, named in parts.items() for name, value in named.items()}
    stack.export(trainee)
    return {**(trainee.plain_weights() if stack.setting.final else trainee.trained_weights()), **more}


def _stored(loop: Loop) -> dict[str, dict[str, Tensor]]:
    stack, trainee = loop.stack, loop.trainee
    return {"hand()": stack.hand(trainee), "keep()": stack.keep(trainee), "state()": stack.state()}


class Stopped(Exception):
    """A run that was stopped on purpose."""


class Memory:
    """A checkpointer that keeps tensors as bits and everything else as JSON, as the run store does."""

    def __init__(self) -> None:
        self.stored: tuple[dict[str, Tensor], str] | None = None

    def save_checkpoint(self, tensors: dict[str, Tensor], meta: dict[str, Any]) -> None:
        self.stored = ({name: value.detach().clone() for name, value in tensors.items()}, json.dumps(meta))

    def load_checkpoint(self) -> tuple[dict[str, Tensor], dict[str, Any]] | None:
        return None if self.stored is None else (self.stored[0], json.loads(self.stored[1]))


def first_step(loop: Loop) -> Step:
    loop.trainee.model.train()
    loop.trainee.attached.train()
    return loop.step_on(loop.stream.batch(0))


def widened(batch: Batch, columns: int, padding_id: int) -> Batch:
    """The batch with ``columns`` more columns of padding on the right."""

    def pad(tensor: Tensor, value: int) -> Tensor:
        return torch.nn.functional.pad(tensor, (0, columns), value=value)

    return replace(
        batch,
        input_ids=pad(batch.input_ids, padding_id),
        attention_mask=pad(batch.attention_mask, 0),
        token_type_ids=None if batch.token_type_ids is None else pad(batch.token_type_ids, 0),
        segment=pad(batch.segment, -1),
        padded=None if columns else batch.padded,
    )


def same(one: Mapping[str, Tensor], other: Mapping[str, Tensor]) -> bool:
    return set(one) == set(other) and all(torch.equal(one[name], other[name]) for name in one)


class _GlobalDraws(TorchFunctionMode):
    """Within the block ``places`` collects where files of a folder draw without a generator: ``file.py:12 (randn)``."""

    def __init__(self, folder: Path) -> None:
        super().__init__()
        self.folder = folder.resolve()
        self.places: list[str] = []

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        kwargs, name = kwargs or {}, getattr(func, "__name__", "")
        meta = any(isinstance(value, Tensor) and value.is_meta for value in (*args, *kwargs.values()))
        if name in DRAWS and kwargs.get("generator") is None and not meta:  # skip_init, on meta tensors, draws nothing
            torch_files = Path(torch.__file__).parent
            frames = [f for f in traceback.extract_stack()[:-1] if not Path(f.filename).is_relative_to(torch_files)]
            place = f"{Path(frames[-1].filename).name}:{frames[-1].lineno} ({name})"
            if Path(frames[-1].filename).resolve().is_relative_to(self.folder) and place not in self.places:
                self.places.append(place)
        return func(*args, **kwargs)
