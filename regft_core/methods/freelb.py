"""FreeLB: adversarial training that uses every step of its ascent (Zhu et al., ICLR 2020).

A perturbation d of the word embeddings is improved for the task loss in K passes, and the gradients of
all K passes, each with weight 1 / K, make one update of the weights. d starts at U(-1, 1) times
initial_size / sqrt(length * E) on real tokens, so that its norm is at most initial_size; after each pass it
moves by ascent_size along its gradient, normalised per example, and is pulled back to norm ``radius`` if one
is given. All passes of a step see the same dropout masks.

Differences between paper and released code:
- passes: K; the release for RoBERTa counts one more, with weights 1 / (K + 1): ``steps: 4`` for its 3. The
  release for ALBERT follows the paper. There is therefore no ``variant``.

Decisions:
- nothing is published for small data. The defaults are the STS-B line of the release for ALBERT: ascent 0.1, K = 3,
  start 0.2, no radius. The same script has (ascent, K, start) 0.03, 4, 0 for MRPC, 0.1, 3, 0 for RTE and 0.04, 3,
  0.05 for CoLA. Its RoBERTa runs take 0.025 to 0.2, 2 or 3, 0.1 to 1, and a radius of 0.14 to 0.7.
- E is the width of the word embeddings. Both texts of a pair that are encoded separately, and both inputs
  of BART, are one example: one length, one norm.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Literal

from pydantic import Field

from regft_core.hooks.base import Cost, Declares, Description, Flip, Handed, Regulariser, StrictModel
from regft_core.hooks.declare import EmbeddingSite, Step, Tensor, Trainee
from regft_core.lazy import torch
from regft_core.training.perturbation import WINDOWS, WordPerturbation, example_norms, token_draws

PASS = "freelb"
#: Entries of word embeddings are about this large; layers see them scaled to 1.
EMBEDDING_SCALE = 0.05
#: An example of 128 tokens and 1024 dimensions: its norm spread over that many entries.
ENTRIES = 128 * 1024


class FreeLbConfig(StrictModel):
    steps: int = Field(3, ge=1, le=32, description="passes per step, K")
    ascent_size: float = Field(0.1, ge=0, description="how far the perturbation of an example moves after a pass")
    initial_size: float = Field(0.2, ge=0, description="bound of its norm at the start")
    radius: float | None = Field(None, gt=0, description="bound of its norm after a move; null: none")
    direction: Literal["gradient", "random"] = "gradient"


class FreeLb(Regulariser):
    name = "freelb"
    Config = FreeLbConfig
    off = {"ascent_size": 0.0, "initial_size": 0.0}
    controls = {
        "random": Flip(
            {"direction": "random"},
            "the perturbation moves as far, but not along the gradient",
            when=lambda options: options.steps > 1 and options.ascent_size > 0,
        )
    }
    sources = {
        "steps": "code: zhuchen03/FreeLB huggingface-transformers/launch/run_glue.sh:58; the line of STS-B",
        "ascent_size": "code: zhuchen03/FreeLB huggingface-transformers/launch/run_glue.sh:58; the line of STS-B",
        "initial_size": "code: zhuchen03/FreeLB huggingface-transformers/launch/run_glue.sh:58; the line of STS-B",
        "radius": "code: zhuchen03/FreeLB huggingface-transformers/launch/run_glue.sh:58; where 0 means none",
        "direction": "ours: gradient is the method, random its control",
    }

    @classmethod
    def declare(cls, options: FreeLbConfig) -> Declares:
        ascent = options.ascent_size if options.steps > 1 else 0.0  # it stands between two passes
        moves = [size for size in (ascent, options.initial_size) if size > 0]
        effect = float(min(moves) / ENTRIES**0.5 / EMBEDDING_SCALE) if moves else None
        return Declares(
            active=bool(moves),
            passes=(PASS,),
            description=Description(
                cost=Cost(options.steps, options.steps),
                smallest_effect=effect,
                refused={"windows": WINDOWS},
            ),
        )

    def prepare(self, trainee: Trainee, handed: Mapping[str, Handed]) -> None:
        self.inputs = len(trainee.sites.embedding_layers)
        self.perturbation = WordPerturbation(trainee, (PASS,), self._start)

    def _start(self, step: Step, positions: Tensor, width: int, site: EmbeddingSite) -> Tensor:
        """``[rows, n, E]``: uniform on real tokens, with a norm of at most ``initial_size`` per example."""
        rows = step.batch.rows_per_example
        lengths = positions.sum(1).view(-1, rows).sum(1).repeat_interleave(rows).view(-1, 1, 1)
        # Both inputs of BART share the bound.
        bound = self.options.initial_size / (lengths * width * self.inputs).sqrt()
        generator = step.generator("freelb.start", site.index)
        return bound * token_draws(positions, width, step.batch.real_tokens, "uniform", generator)

    def backward(self, step: Step) -> Tensor:
        """K passes, each with a backward of weight 1 / K; an ascent between them."""
        self.perturbation.begin(step)
        steps, losses = self.options.steps, []
        for ascent in range(steps):
            loss = step.task_loss(step.forward(PASS, draw=0))
            step.backward(loss / steps)
            losses.append(loss.detach())
            if ascent + 1 < steps:
                self.ascend(step, ascent)
        self.diagnostics.read(step, first_loss=losses[0], last_loss=losses[-1])
        return torch.stack(losses).mean()

    def ascend(self, step: Step, ascent: int) -> None:
        """Move the perturbation of every example by ``ascent_size``, then back into the radius."""
        rows = step.batch.rows_per_example
        values = self.perturbation.tensors()
        if self.options.direction == "random":
            moves = list(self.perturbation.draws("normal", "freelb.direction", ascent))
        else:
            moves = [torch.zeros_like(value) if value.grad is None else value.grad for value in values]
        norms = example_norms(moves, rows)
        # No gradient (or one that fp16 overflowed, whose step the scaler skips) gives no direction.
        size = torch.where((norms > 0) & norms.isfinite(), self.options.ascent_size / norms, 0.0)
        pairs = zip(values, moves, strict=True)
        new = [value.detach() + torch.where(size > 0, size * move, 0.0) for value, move in pairs]
        if self.options.radius is not None:
            shrink = (self.options.radius / example_norms(new, rows).clamp_min(1e-30)).clamp(max=1.0)
            new = [value * shrink for value in new]
        self.perturbation.update(new)
