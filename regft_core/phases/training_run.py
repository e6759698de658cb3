"""Train one phase of one run through the loop, and describe what happened."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import torch

from regft_core.config.schema import TrainingConfig
from regft_core.methods.stack import Stack
from regft_core.phases.context import Context
from regft_core.progress import ProgressWriter
from regft_core.runs.killpoints import killpoint
from regft_core.training.loop import Checkpointer, Loop, Progression
from regft_core.training.stream import BatchStream
from regft_core.training.trainee import Trainee

if TYPE_CHECKING:
    from torch import Tensor

    from regft_core.data.encode import Encoded


@dataclass
class Trained:
    """A phase that ran to its last step."""

    trainee: Trainee
    stack: Stack
    progression: Progression
    peak_memory_bytes: int | None


def make_deterministic(context: Context) -> bool:
    """Ask for deterministic kernels on a GPU; the CPU's are deterministic as they are."""
    wanted = context.params.execution.deterministic
    if context.device.startswith("cuda"):
        torch.use_deterministic_algorithms(wanted)
        # TF32 would round away noise of 1e-5 in every matrix product.
        torch.backends.cuda.matmul.allow_tf32 = False
        torch.backends.cudnn.allow_tf32 = False
    return wanted or not context.device.startswith("cuda")


def train_phase(
    context: Context,
    phase: str,
    training: TrainingConfig,
    encoded: Encoded,
    *,
    checkpointer: Checkpointer,
    handed: dict[str, Tensor] | None = None,
    rows: Sequence[int] | None = None,
    validation_rows: Sequence[int] = (),
) -> Trained:
    """Build the model of a phase, let the regularisers prepare it, and train it.

    Args:
        phase: ``finetune`` or the name of a search run; also names the random streams.
        rows, validation_rows: parts of ``encoded``; all rows and none by default.
        handed: state from the search phase.

    Raises:
        RunFailed: the loss became NaN.
    """
    make_deterministic(context)
    setting = context.setting(phase, training)
    stack = Stack(context.entries, context.method.search, setting)
    trainee = context.trainee(phase, training)
    stack.prepare(trainee, handed)

    def stream(chosen: Sequence[int] | None, name: str) -> BatchStream:
        return BatchStream(
            encoded,
            kind=setting.kind,
            padding=context.padding,
            seed=context.job.seed,
            stream=name,
            batch_size=training.batch_size,
            bucket_batches=training.bucket_batches,
            device=trainee.device,
            rows=chosen,
        )

    if trainee.device.type == "cuda":
        torch.cuda.reset_peak_memory_stats(trainee.device)
    loop = Loop(
        trainee,
        stack,
        stream(rows, phase),
        training,
        validation=stream(validation_rows, f"{phase}-validation") if validation_rows else None,
        checkpointer=checkpointer,
        checkpoint_seconds=context.params.execution.checkpoint_seconds,
        progress=ProgressWriter(context.job.progress, context.job.seed, phase),
        on_step=lambda _: killpoint("step"),
    )
    progression = loop.train()
    peak = torch.cuda.max_memory_allocated(trainee.device) if trainee.device.type == "cuda" else None
    return Trained(trainee, stack, progression, peak)


def cost(done: Progression, declared_ratio: float, peak_memory_bytes: int | None) -> dict[str, Any]:
    """The cost part of a run's record (passes are per batch of the step, in units of the batch)."""
    batches = max(1, done.batches)
    return {
        "forward_passes_per_step": done.forward_passes / batches,
        "backward_passes_per_step": done.backward_passes / batches,
        "declared_ratio": declared_ratio,
        "train_seconds": done.seconds,
        "seconds_per_step": done.seconds / max(1, done.step),
        "real_tokens": done.real_tokens,
        "padded_tokens": done.padded_tokens,
        "peak_memory_bytes": peak_memory_bytes,
    }


def curve_rows(phase: str, done: Progression) -> list[list[Any]]:
    """[phase, step, epoch, loss, learning rate, gradient norm] per optimiser step."""
    return [[phase, *values] for values in done.curve]
