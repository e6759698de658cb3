"""Attention-guided weight mixup with bi-level optimisation (Somayajula et al., NAACL 2024).

Every weight matrix of the encoder is a mix of the task weight and its pretrained value; the
mixing attention is learned on held-out splits in a search phase, averaged over K random
splits, and frozen while the task weights are fine-tuned.

Differences between paper and released code (``variant``):
- hypergradient: DARTS with the inner learning rate as factor of the implicit term; released:
  no factor, direction preconditioned by Adam's second moment (``training/two_level.py``).
- dropout masks of the two finite-difference passes: the same; released: independent.
- task weights: restored after the finite difference, stepped once; released: stepped before
  and after the attention update, and left displaced by the radius (``TwoLevelStep.stepped``).
- Adam's moments: kept; released: reset once, after the first inner step.
- attention decay 0.01 and constant rate after warm-up; released: no decay, cosine schedule.
- clipping of the inner step: the shared protocol's; released: norm 5.
- clip norm while fine-tuning: over trained parameters; released: also over the gradients of
  the frozen attention and of the pretrained copies.
- what is averaged over the searches is ambiguous in the paper; the released launchers average
  all weights and continue from there (``search.average: all``, the default in both variants).
"""

from __future__ import annotations

import random
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, ClassVar, Literal

from pydantic import Field

from regft_core.config.schema import StrictModel
from regft_core.lazy import torch
from regft_core.methods.base import Cost, ParameterGroup, Regulariser, SearchRun, Variant
from regft_core.rng import derive

if TYPE_CHECKING:
    from torch import Tensor, nn

    from regft_core.models.mixing import WeightMixing
    from regft_core.training.step import Step
    from regft_core.training.trainee import Trainee
    from regft_core.training.two_level import TwoLevelStep


class WeightMixupConfig(StrictModel):
    """Options of the mixed weights, common to both phases."""

    variant: Literal["paper", "released"] = "paper"
    mode: Literal["search", "joint", "fixed"] = Field(
        "search", description="attention from a search phase, trained with the weights, or drawn and frozen"
    )
    attention: Literal["learned", "ones"] = Field(
        "learned", description="ones: the same protocol with the attention fixed at 1 (a control)"
    )
    form: Literal["factored", "convex", "full_rank"] = "factored"
    rank: int = Field(1, ge=1, le=64)
    initial_std: float = Field(0.005, ge=0, description="sd of the initial attention around 1, clipped to [0, 1]")
    attention_learning_rate: float = Field(2e-3, gt=0)
    attention_weight_decay: float | None = Field(None, ge=0, description="0.01 (paper) or 0 (released) when null")


class WeightMixupSearchConfig(StrictModel):
    """The search phase."""

    repeats: int = Field(2, ge=1, le=100, description="K random splits, searched one after the other")
    split: float = Field(0.8, gt=0, lt=1, description="share of the subsample that the inner level trains on")
    epochs: int = Field(1, ge=1)
    learning_rate: float | None = Field(None, gt=0, description="of the task weights; the shared one when null")
    implicit: Literal["learning_rate", "none", "one"] | None = Field(
        None, description="factor of the implicit term (none: first order); null: learning_rate (paper), one (released)"
    )
    radius: float = Field(0.01, gt=0, description="length of the finite-difference shift")
    inner_gradient: Literal["fresh", "reused"] = Field(
        "fresh", description="reused: the weight step takes the gradient at the old attention, saving one pass"
    )
    interval: int = Field(1, ge=1, description="attention is updated every this many steps")
    average: Literal["all", "attention"] = Field(
        "all", description="what the K searches are averaged over; attention: fine-tuning restarts from pretrained"
    )


class WeightMixup(Regulariser):
    """Mixes task and pretrained weights by a learned attention."""

    name = "weight_mixup"
    Config = WeightMixupConfig
    SearchConfig = WeightMixupSearchConfig
    off: ClassVar[dict[str, Any]] = {"mode": "fixed", "initial_std": 0.0}

    @classmethod
    def variant(cls, options: WeightMixupConfig) -> Variant | None:
        return options.variant

    @classmethod
    def search_phase(cls, options: WeightMixupConfig) -> bool:
        return options.mode == "search"

    @classmethod
    def program(cls, options: WeightMixupConfig, phase: str) -> tuple[str, ...] | None:
        two_level = options.mode == "search" and options.attention == "learned"
        return ("train", "validation") if two_level and phase == "search" else None

    @classmethod
    def owns_weights(cls, options: WeightMixupConfig) -> bool:
        return True

    @classmethod
    def refused_precisions(cls, options: WeightMixupConfig) -> dict[str, str]:
        if not cls.program(options, "search"):
            return {}
        reason = "finite differences of the search lose their digits"
        return {"bf16": reason, "fp16": reason}

    @classmethod
    def check_options(cls, options: WeightMixupConfig, search: WeightMixupSearchConfig | None) -> list[str]:
        problems = []
        if options.form == "full_rank" and options.rank != 1:
            problems.append("rank has no meaning with form: full_rank; remove it")
        if options.attention == "ones" and options.mode != "search":
            problems.append("attention: ones is plain fine-tuning unless mode is search; use vanilla")
        if search is not None and options.rank > 1 and search.repeats > 1:
            problems.append(
                "search.repeats > 1 averages the factors a1 and a2 of independent searches, which is meaningless "
                "for rank > 1; set repeats: 1 or rank: 1"
            )
        if search is not None and options.variant == "released" and search.inner_gradient == "reused":
            problems.append("inner_gradient: reused belongs to variant: paper; the released step has none to reuse")
        if search is not None and options.variant == "released" and search.implicit == "learning_rate":
            problems.append("the released hypergradient has no learning-rate factor; use implicit: one or none")
        return problems

    @classmethod
    def search_cost(cls, options: WeightMixupConfig, search: WeightMixupSearchConfig) -> Cost:
        if options.attention == "ones":
            return Cost()
        if options.variant == "released":
            full = 3.0 if search.implicit == "none" else 5.0
        elif search.implicit == "none":
            full = 2.0
        else:
            full = 5.0 if search.inner_gradient == "fresh" else 4.0
        passes = (full + (search.interval - 1)) / search.interval
        return Cost(passes, passes)

    @classmethod
    def search_epochs(cls, options: WeightMixupConfig, search: WeightMixupSearchConfig) -> float:
        return search.repeats * search.epochs * search.split

    # -------------------------------------------------------------------------------- search

    def search_runs(self, rows: int) -> list[SearchRun]:
        """K independent random splits into int(split * n) and the rest (not K folds)."""
        runs = []
        released = self.options.variant == "released"
        for k in range(self.search.repeats):
            order = list(range(rows))
            random.Random(derive(self.setting.seed, "weight_mixup.split", k)).shuffle(order)
            cut = int(self.search.split * rows)
            changes: dict[str, Any] = {"epochs": self.search.epochs, "max_steps": None}
            if self.search.learning_rate is not None:
                changes["learning_rate"] = self.search.learning_rate
            if released:
                changes["clip_norm"] = 5.0
            training = self.setting.training.model_copy(update=changes)
            runs.append(SearchRun(f"search-{k}", k, tuple(sorted(order[:cut])), tuple(sorted(order[cut:])), training))
        return runs

    def search_result(self, trainee: Trainee) -> dict[str, Tensor]:
        result = {name: value.detach().cpu().clone() for name, value in self._attention().items()}
        if self.search.average == "all":
            result |= {f"weights/{name}": value.detach().cpu().clone() for name, value in trainee.named_raw()}
        return result

    def combine(self, results: Sequence[dict[str, Tensor]]) -> dict[str, Tensor]:
        """Mean over the searches, entry by entry (a1 and a2 separately, as released)."""
        names = results[0]
        return {name: torch.stack([r[name].double() for r in results]).mean(0).to(names[name].dtype) for name in names}

    # ------------------------------------------------------------------------------- prepare

    def prepare(self, trainee: Trainee, handed: dict[str, Tensor] | None) -> None:
        from torch.nn.utils import parametrize

        from regft_core.models.mixing import WeightMixing

        self.trainee = trainee
        fixed_at_one = self.options.attention == "ones"
        generator = None if fixed_at_one else trainee.generator("weight_mixup.initial")
        self.mixings: dict[str, WeightMixing] = {}
        for name in trainee.sites.mixable:
            module, attribute = trainee.module_of(name)
            mixing = WeightMixing(
                getattr(module, attribute),
                rank=self.options.rank,
                form=self.options.form,
                std=self.options.initial_std,
                generator=generator,
            )
            parametrize.register_parametrization(module, attribute, mixing)
            self.mixings[name] = mixing
        if handed:
            self._load_handed(trainee, handed)
        searching = self.setting.phase != "finetune"
        self._require_attention_gradients(self.options.mode == "joint")
        if searching and self.program(self.options, "search"):
            self.two_level = self._two_level_step()
        self._extra_in_clip = self.options.variant == "released" and not searching and self.options.mode == "search"
        if self._extra_in_clip:
            self._require_attention_gradients(True)
            for mixing in self.mixings.values():
                mixing.pretrained.requires_grad_(True)

    def _require_attention_gradients(self, needed: bool) -> None:
        """Gradients of the attention only where they are asked for: they cost a pass over W."""
        for parameter in self._attention().values():
            parameter.requires_grad_(needed)

    def _attention(self) -> dict[str, nn.Parameter]:
        return {f"attention/{n}/{key}": p for n, m in self.mixings.items() for key, p in m.named_parameters()}

    def _load_handed(self, trainee: Trainee, handed: dict[str, Tensor]) -> None:
        with torch.no_grad():
            for name, parameter in self._attention().items():
                parameter.copy_(handed[name])
            for name, parameter in trainee.named_raw():
                if f"weights/{name}" in handed:
                    parameter.copy_(handed[f"weights/{name}"])

    def _decay(self) -> float:
        if self.options.attention_weight_decay is not None:
            return self.options.attention_weight_decay
        return 0.01 if self.options.variant == "paper" else 0.0

    def _two_level_step(self) -> TwoLevelStep:
        from regft_core.training.two_level import TwoLevelStep

        attention, released = self._attention(), self.options.variant == "released"
        group = {"names": [name.replace("/", ":") for name in attention], "params": list(attention.values())}
        rate = self.options.attention_learning_rate
        return TwoLevelStep(
            upper=list(attention.values()),
            optimizer=torch.optim.AdamW([group], lr=rate, weight_decay=self._decay()),
            rate=rate,
            shape="cosine" if released else "constant",
            implicit=self.search.implicit or ("one" if released else "learning_rate"),
            radius=self.search.radius,
            interval=self.search.interval,
            inner_gradient=self.search.inner_gradient,
            updated=self._attention_updated,
        )

    def parameter_groups(self) -> list[ParameterGroup]:
        if self.options.mode != "joint":
            return []
        named = {name.replace("/", ":"): parameter for name, parameter in self._attention().items()}
        return [ParameterGroup(named, self.options.attention_learning_rate, self._decay())]

    # ------------------------------------------------------------------------------ the step

    def backward(self, step: Step) -> Tensor:
        """One two-level step; the loop then clips and steps the task weights."""
        if self.two_level.due(step):
            if self.options.variant == "released":
                self.two_level.stepped(step)
            else:
                reused = self.two_level.virtual(step)
                if reused is not None:
                    return reused
        loss = step.task_loss(step.forward("train", draw=0))
        step.backward(loss)
        return loss.detach()

    def _attention_updated(self, index: int, gradient: list[Tensor]) -> None:
        from regft_core.training.bilevel import global_norm

        self._project()
        if index % 10 == 0:
            values = torch.cat([p.detach().flatten() for p in self._attention().values()])
            self.diagnostics.log("weight_mixup.attention_mean", index, float(values.mean()))
            self.diagnostics.log("weight_mixup.attention_min", index, float(values.min()))
            self.diagnostics.log("weight_mixup.hypergradient_norm", index, float(global_norm(gradient)))

    def _project(self) -> None:
        for mixing in self.mixings.values():
            mixing.clamp()

    def before_clip(self, step: Step) -> None:
        """Released: frozen attention and pretrained copies count in the clip norm."""
        limit = step.setting.training.clip_norm
        if not self._extra_in_clip or limit is None:
            return
        from regft_core.training.bilevel import global_norm

        extra = [t for m in self.mixings.values() for t in (m.pretrained, *m.parameters())]
        own = [p.grad for p in step.weights() if p.grad is not None]
        norm = global_norm([*own, *(t.grad for t in extra if t.grad is not None)])
        factor = torch.clamp(limit / (norm + 1e-6), max=1.0)
        for gradient in own:
            gradient.mul_(factor)
        for tensor in extra:
            tensor.grad = None

    def after_update(self, step: Step) -> None:
        if self.options.mode == "joint":
            self._project()

    # -------------------------------------------------------------------------------- state

    def state(self) -> dict[str, Tensor]:
        from regft_core.training.optim import optimizer_tensors

        if not hasattr(self, "two_level"):
            return {}
        return optimizer_tensors(self.two_level.optimizer, prefix="attention")

    def load_state(self, state: dict[str, Tensor]) -> None:
        from regft_core.training.optim import load_optimizer_tensors

        if hasattr(self, "two_level"):
            load_optimizer_tensors(self.two_level.optimizer, state, prefix="attention")

    def export(self, trainee: Trainee) -> None:
        """Fold: each weight becomes its mixed value; attention and pretrained copies go."""
        from torch.nn.utils import parametrize

        for name in self.mixings:
            module, attribute = trainee.module_of(name)
            parametrize.remove_parametrizations(module, attribute, leave_parametrized=True)
