"""SMART: smoothness against adversarial noise, and small steps in prediction space (Jiang et al., ACL 2020).

The loss is CE + weight * D(f(x), f(x + d)) + proximal * D(f(x), f~(x)). D is the symmetric KL (the sum of both
directions), or the squared difference on regression, averaged over the batch. d perturbs the word
embeddings: it starts as N(0, noise^2), moves by ``step_size`` along its gradient of D divided by the
gradient's largest entry per example, and is clipped to [-radius, radius]. f~ is the model under a moving
average of its past weights, with momentum 0.99 in the first tenth of the steps and 0.999 later (the
Bregman proximal point method); no gradient goes into it.

Differences between paper and released code (``variant``):
- proximal term: weight 1; released: the toolkit has none.
- perturbation: as above; released: noise plus step_size (1e-5 instead of 1e-3) times the raw gradient is
  divided by its largest entry per token and not scaled back, so its entries reach 1, not 1e-5.
- site: word embeddings; released: the full embedding output is fed in as word embeddings, so positions, norm
  and dropout are applied twice. Families without an embedding module of that kind are refused there.
- gradient of D: through both predictions; released: each direction's target is detached.
- ascent: along the gradient of D; released: of twice the sum over the classes of q times the difference of the log
  odds of q and p, held fixed (p plain, q perturbed): about twice that of D for two classes that hardly differ,
  another direction for more.
- regression: the squared difference is that of one example's two outputs; released: the outputs have shapes that
  broadcast, so it is the mean over all pairs of an output and a perturbed output of the batch.

Decisions:
- released draws other dropout masks for the embeddings of the perturbed passes than for those of the plain one;
  here they are the same, which saves one pass through the embeddings.
- the passes over perturbed inputs have dropout masks of their own, as in the released code; the proximal
  pass shares those of the plain one, so that its divergence is due to the weights alone.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any, Literal

from pydantic import Field

from regft_core.errors import ModelError
from regft_core.hooks.base import Cost, Declares, Description, Flip, Handed, MainPass, Phase, Regulariser, StrictModel
from regft_core.hooks.declare import EmbeddingSite, Step, Tensor, Trainee
from regft_core.kinds import find
from regft_core.lazy import torch
from regft_core.training.distances import divergence, kl
from regft_core.training.perturbation import WINDOWS, WordPerturbation, example_maxima, token_draws

ASCENT, PERTURBED, PAST = "smart.ascent", "smart.perturbed", "smart.past"
#: Share of the steps after which the moving average gets its later momentum.
EARLY = 0.1


class SmartConfig(StrictModel):
    variant: Literal["paper", "released"] = "paper"
    weight: float = Field(1.0, ge=0, description="of the smoothness term; 1, 3 or 5 in the paper")
    proximal: float | None = Field(None, ge=0, description="weight of the proximal term; null: 1 (paper), 0 (released)")
    steps: int = Field(1, ge=1, le=32, description="ascent steps; not of direction: random")
    noise: float = Field(1e-5, gt=0, description="sd of the first perturbation")
    step_size: float | None = Field(None, gt=0, description="of the ascent; null: 1e-3 (paper), 1e-5 (released)")
    radius: float = Field(1e-5, gt=0, description="largest entry of the perturbation (paper)")
    direction: Literal["gradient", "random"] = "gradient"
    momentum: float = Field(0.99, ge=0, lt=1, description="of past weights, in the first tenth of the steps")
    late_momentum: float = Field(0.999, ge=0, lt=1, description="of past weights, from then on")

    @property
    def mu(self) -> float:
        usual = 1.0 if self.variant == "paper" else 0.0
        return usual if self.proximal is None else self.proximal

    @property
    def eta(self) -> float:
        usual = 1e-3 if self.variant == "paper" else 1e-5
        return usual if self.step_size is None else self.step_size


class Smart(Regulariser):
    name = "smart"
    Config = SmartConfig
    off = {"weight": 0.0, "proximal": 0.0}
    controls = {
        "random": Flip(
            {"direction": "random"},
            "the noise is random, not the result of an ascent",
            when=lambda options: options.weight > 0,
        ),
        "no_proximal": Flip({"proximal": 0.0}, "no proximal term", when=lambda options: options.mu > 0),
        "proximal_only": Flip({"weight": 0.0}, "no smoothness term, so no noise", when=lambda options: options.mu > 0),
    }
    sources = {
        "variant": "ours: the printed method; released says where the code differs",
        "weight": "code: namisan/mt-dnn train.py:205",
        "proximal": "ours: 1 under paper, whose text was not at hand to check; the released code has no such term",
        "steps": "code: namisan/mt-dnn train.py:206",
        "noise": "code: namisan/mt-dnn train.py:208",
        "step_size": "code: namisan/mt-dnn mt_dnn/perturbation.py:28; 1e-3, and released the 1e-5 of train.py:207",
        "radius": "ours: that of the noise; the paper was not at hand to check, the released code has none",
        "direction": "ours: gradient is the method, random its control",
        "momentum": "ours: not in the released code; the paper was not at hand to check",
        "late_momentum": "ours: not in the released code; the paper was not at hand to check",
    }

    @classmethod
    def declare(cls, options: SmartConfig) -> Declares:
        ascents = options.steps if options.direction == "gradient" else 0
        added: tuple[str, ...] = ()
        passes, effect = 1, 0.0
        if options.weight > 0:
            added = (ASCENT, PERTURBED) if options.direction == "gradient" else (PERTURBED,)
            passes += ascents + 1
            effect = min(options.noise, options.radius) if options.variant == "paper" else options.noise
        past = (PAST,) if options.mu > 0 else ()
        return Declares(
            active=options.weight > 0 or options.mu > 0,
            passes=(*added, *past),
            description=Description(
                cost=Cost(passes + len(past), passes),
                smallest_effect=effect or None,
                refused={"windows": WINDOWS},
            ),
        )

    @classmethod
    def check_options(cls, options: SmartConfig, phase: Phase) -> list[str]:
        problems = []
        if options.variant == "released" and options.mu > 0:
            problems.append("proximal is not in the released code; use variant: paper, or remove it")
        if options.variant == "released" and "radius" in options.model_fields_set:
            problems.append("radius is not used by the released code, which scales to 1; remove it")
        return problems

    def prepare(self, trainee: Trainee, handed: Mapping[str, Handed]) -> None:
        self.past: dict[str, Tensor] | None = None
        self.output: Tensor | None = None
        if self.options.weight == 0:
            return
        if self.options.variant == "released":
            embeddings = getattr(trainee.model.base_model, "embeddings", None)
            if not isinstance(embeddings, torch.nn.Module):
                raise ModelError(
                    "encoder-does-not-fit",
                    f"smart: variant released feeds the embedding output in as word embeddings, and "
                    f"{trainee.sites.architecture} has no module that gives it; use variant: paper",
                )
            embeddings.register_forward_hook(self._keep_output)
            trainee.hooks.on_word_embedding(self._output_again)
        self.perturbation = WordPerturbation(trainee, (ASCENT, PERTURBED), self._start)

    def _keep_output(self, module: Any, args: Any, output: Tensor) -> None:
        if module.training and self.trainee.running("main"):
            self.output = output

    def _output_again(self, tensor: Tensor, site: EmbeddingSite) -> Tensor:
        """The plain pass's embedding output instead of the word embeddings."""
        if not self.trainee.running(ASCENT, PERTURBED):
            return tensor
        assert self.output is not None
        if self.output.shape != tensor.shape:
            raise ModelError(
                "encoder-does-not-fit",
                f"smart: variant released feeds the embedding output {tuple(self.output.shape)} in as word embeddings "
                f"{tuple(tensor.shape)}, which does not fit this encoder; use variant: paper",
            )
        # The ascent needs the gradient of the perturbation only.
        return self.output.detach() if self.trainee.running(ASCENT) else self.output

    def _start(self, step: Step, positions: Tensor, width: int, site: EmbeddingSite) -> Tensor:
        """The first perturbation ``[rows, n, E]``; with random directions, also the last."""
        paper, random = self.options.variant == "paper", self.options.direction == "random"
        generator = step.generator("smart.noise", site.index)
        law: Literal["sign", "normal"] = "sign" if paper and random else "normal"
        draws = token_draws(positions, width, step.batch.real_tokens, law, generator)
        if random:
            return draws * self.options.radius if paper else per_token(draws * self.options.noise)
        return draws * self.options.noise

    def terms(self, step: Step, main: MainPass) -> Tensor:
        terms = []
        if self.options.weight > 0:
            smoothness = self.smoothness(step, main)
            terms.append(self.options.weight * smoothness)
            self.diagnostics.read(step, smoothness=smoothness)
        if self.options.mu > 0:
            proximity = self.proximity(step, main)
            terms.append(self.options.mu * proximity)
            self.diagnostics.read(step, proximity=proximity)
        self.output = None
        return torch.stack(terms).sum()

    def smoothness(self, step: Step, main: MainPass) -> Tensor:
        """D between the plain prediction and the one under the perturbation that the ascent found."""
        kind = step.setting.kind
        self.perturbation.begin(step)
        if self.options.direction == "gradient":
            for ascent in range(self.options.steps):
                logits = step.forward(ASCENT, draw=f"{ASCENT}.{ascent}")
                climbed = self._climbed(main.logits.detach(), logits, kind)
                self.ascend(step, step.gradients(climbed.sum(), self.perturbation.tensors()))
        perturbed = step.forward(PERTURBED, draw=PERTURBED)
        if self.options.variant == "released" and not find(kind).has_labels:
            each = (main.logits.view(1, -1) - perturbed.view(-1, 1)).square()
        elif self.options.variant == "released":
            each = kl(perturbed.detach(), main.logits, kind) + kl(main.logits.detach(), perturbed, kind)
        else:
            each = divergence(main.logits, perturbed, kind)
        return each.mean()

    def _climbed(self, plain: Tensor, perturbed: Tensor, kind: str) -> Tensor:
        """Return the objective of the ascent, ``[B]``."""
        if self.options.variant == "released" and find(kind).one_label:
            return log_odds_divergence(plain, perturbed)
        return divergence(plain, perturbed, kind)

    def ascend(self, step: Step, gradients: list[Tensor]) -> None:
        """One step of the perturbation along its gradients ``[rows, n, E]``."""
        old = [value.detach() for value in self.perturbation.tensors()]
        if self.options.variant == "released":
            pairs = zip(old, gradients, strict=True)
            self.perturbation.update([per_token(value + self.options.eta * one) for value, one in pairs])
            return
        largest = example_maxima(gradients, step.batch.rows_per_example)
        size = torch.where(largest > 0, self.options.eta / largest, 0.0)
        limit = self.options.radius
        moved = [(value + size * one).clamp(-limit, limit) for value, one in zip(old, gradients, strict=True)]
        self.perturbation.update(moved)

    def proximity(self, step: Step, main: MainPass) -> Tensor:
        """D between the plain prediction and that of the past weights under the same dropout masks."""
        with self._under_past_weights():
            past = step.forward(PAST, draw=0)
        return divergence(main.logits, past, step.setting.kind).mean()

    @contextmanager
    def _under_past_weights(self) -> Iterator[None]:
        """Within it, passes run under the moving average, and build no graph.

        Only the storage behind the parameters is exchanged, so graphs of earlier passes stay valid.
        """
        parameters, past = dict(self.trainee.named_trainable()), self._past()
        present = {name: parameter.data for name, parameter in parameters.items()}
        try:
            for name, parameter in parameters.items():
                parameter.data = past[name]
            with torch.no_grad():
                yield
        finally:
            for name, parameter in parameters.items():
                parameter.data = present[name]

    def observe_weights(self, step: Step) -> None:
        """average <- momentum * average + (1 - momentum) * weights."""
        if self.options.mu == 0:
            return
        momentum = self.options.momentum if step.index < EARLY * step.total else self.options.late_momentum
        with torch.no_grad():
            for name, parameter in self.trainee.named_trainable():
                self._past()[name].lerp_(parameter.detach(), 1 - momentum)

    def _past(self) -> dict[str, Tensor]:
        # Not in prepare: regularisers that come later may still change the starting weights.
        if self.past is None:
            self.past = {name: parameter.detach().clone() for name, parameter in self.trainee.named_trainable()}
        return self.past

    def state(self) -> dict[str, Tensor]:
        return dict(self._past()) if self.options.mu > 0 else {}

    def load_state(self, state: dict[str, Tensor]) -> None:
        if self.options.mu > 0:
            self.past = state


def per_token(value: Tensor) -> Tensor:
    """``[rows, n, E]`` over its largest absolute entry per token, v / (v + 1e-6) of which remains."""
    return value / (value.abs().amax(-1, keepdim=True) + 1e-6)


def log_odds_divergence(plain: Tensor, perturbed: Tensor, epsilon: float = 1e-6) -> Tensor:
    """Return the objective of the released ascent, ``[B]`` from ``[B, K]`` logits; the log odds get no gradient."""

    def log_odds(p: Tensor) -> Tensor:
        return -(1 / (p + epsilon) - 1 + epsilon).log()

    p, q = plain.softmax(-1), perturbed.softmax(-1)
    return 2 * (q * (log_odds(q) - log_odds(p)).detach()).sum(-1)
