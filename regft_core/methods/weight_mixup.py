"""Attention-guided weight mixup with bi-level optimisation (Somayajula et al., NAACL 2024).

Every weight matrix of the encoder is a mix of the task weight and its pretrained value. One phase
learns the mixing attention on rows set aside (``attention: bilevel``), over K random splits whose
results are averaged; fine-tuning takes it from there (``attention: <that phase>``) and freezes it.

Differences between paper and released code (``variant``):
- hypergradient: DARTS with the inner learning rate as factor of the implicit term; released:
  no factor, direction preconditioned by Adam's second moment (``training/two_level.py``).
- dropout masks of the two finite-difference passes: the same; released: independent.
- task weights: restored after the finite difference, stepped once; released: stepped before
  and after the attention update, each with masks of its own, and left displaced by the radius.
- Adam's moments: kept; released: reset once, after the first inner step.
- attention decay 0.01 and constant rate after warm-up; released: no decay, cosine schedule.
- clipping of the inner step: the shared protocol's; released: norm 5 (``training.clip_norm``).
- steps of a search epoch: all batches; released: rows // batch + 1, one more when that divides.
- clip norm while fine-tuning: over trained parameters; released: also over the gradients of
  the frozen attention and of the pretrained copies.
- what is averaged over the searches is ambiguous in the paper; the released launchers average
  all weights and continue from there. That is ``start: previous``, the default in both variants;
  ``start: checkpoint`` keeps the attention only.

Decisions:
- ``weight_mixup.implicit_share`` logs |implicit| / (|direct| + |implicit|), 2-norms over all attention. Under
  ``variant: paper`` it is 0.4% (MiniLM at 1e-4), since the learning rate is the factor of the term: ``implicit: none``
  finds nearly the same attention at 1.8 instead of 3.0 times the cost. Released: above 99.9%, most of it noise.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Literal, get_args

from pydantic import Field

from regft_core.errors import ModelError
from regft_core.hooks.base import Cost, Declares, Description, Handed, ParameterGroup, Phase, Regulariser, StrictModel
from regft_core.hooks.declare import LOG_EVERY, Step, Tensor, Trainee
from regft_core.lazy import torch
from regft_core.schema import Name
from regft_core.training.optim import load_optimizer_tensors, optimizer_tensors
from regft_core.training.schedules import constant, cosine

if TYPE_CHECKING:
    from regft_core.models.weight_views import WeightMixing
    from regft_core.training.two_level import TwoLevelStep


Form = Literal["factored", "convex", "full_rank"]
FORMS: tuple[Form, ...] = get_args(Form)
#: Where the attention comes from when it is not taken from an earlier phase.
SOURCES = ("bilevel", "joint", "random")


class WeightMixupConfig(StrictModel):
    """Options of the mixed weights; those below ``attention_weight_decay`` belong to the bi-level step."""

    variant: Literal["paper", "released"] = "paper"
    attention: Name = Field(
        "bilevel",
        description="bilevel: learned on the validation share; joint: trained with the weights; random: drawn and "
        "frozen; or the name of the phase that learned it: taken from there and frozen",
    )
    form: Form = "factored"
    rank: int = Field(1, ge=1, le=64)
    initial_std: float = Field(0.005, ge=0, description="sd of the initial attention around 1, clipped to [0, 1]")
    attention_learning_rate: float = Field(2e-3, gt=0)
    attention_weight_decay: float | None = Field(None, ge=0, description="0.01 (paper) or 0 (released) when null")
    implicit: Literal["learning_rate", "none", "one"] | None = Field(
        None, description="factor of the implicit term (none: first order); null: learning_rate (paper), one (released)"
    )
    radius: float = Field(0.01, gt=0, description="length of the finite-difference shift")
    inner_gradient: Literal["fresh", "reused"] = Field(
        "fresh", description="reused: the weight step takes the gradient at the old attention, saving one pass"
    )
    interval: int = Field(1, ge=1, description="attention is updated every this many steps")


def search_cost(options: WeightMixupConfig) -> Cost:
    """Passes per step of the bilevel search."""
    if options.variant == "released":
        full = 3.0 if options.implicit == "none" else 5.0
    elif options.implicit == "none":
        full = 2.0
    else:
        full = 5.0 if options.inner_gradient == "fresh" else 4.0
    passes = (full + (options.interval - 1)) / options.interval
    return Cost(passes, passes)


class WeightMixup(Regulariser):
    name = "weight_mixup"
    Config = WeightMixupConfig
    off = {"attention": "random", "initial_std": 0.0}
    sources = {
        "variant": "ours: the printed method; released says where the code differs",
        "attention": "paper: section 3.2",
        "form": "code: Sai-Ashish/Attention_guided_weight_mixup_BLO blo.py:38-40",
        "rank": "paper: appendix D.1",
        "initial_std": "paper: appendix D.1",
        "attention_learning_rate": "code: Sai-Ashish/Attention_guided_weight_mixup_BLO run.sh:13",
        "attention_weight_decay": "paper: appendix D.1; 0.01, and under released the 0 of run.sh:15",
        "implicit": "paper: appendix A; under released no factor, as its library does",
        "radius": "code: leopard-ai/betty betty/configs/problem_dataclass.py:35; the library of the released code",
        "inner_gradient": "paper: appendix A",
        "interval": "paper: appendix A; every step",
    }

    @classmethod
    def declare(cls, options: WeightMixupConfig) -> Declares:
        bilevel, paper = options.attention == "bilevel", options.variant == "paper"
        why = "finite differences of the search lose their digits"
        return Declares(
            needs={} if options.attention in SOURCES else {options.attention: "state"},
            anchors=("checkpoint",),
            edits=("structure",),
            hands_over="trained",  # fine-tuning mixes again, so it starts from the task weights behind the mix
            passes=("train", "validation") if bilevel else (),
            virtual_step=bilevel,
            owns_weights=True,
            validation_share=bilevel,
            # The released variant reads gradients of frozen tensors, which the graph would not hand over.
            recordable=paper and options.attention not in ("bilevel", "joint"),
            description=Description(
                cost=search_cost(options) if bilevel else Cost(),
                refused=dict.fromkeys(("bf16", "fp16", "tf32"), why) if bilevel else {},
            ),
        )

    @classmethod
    def check_options(cls, options: WeightMixupConfig, phase: Phase) -> list[str]:
        problems = []
        if options.form == "full_rank" and options.rank != 1:
            problems.append("rank has no meaning with form: full_rank; remove it")
        under, idle = f"attention: {options.attention}", list[str]()
        if options.attention != "bilevel":
            idle = ["implicit", "radius", "inner_gradient", "interval"]
            idle += [] if options.attention == "joint" else ["attention_learning_rate", "attention_weight_decay"]
            idle += [] if options.attention in SOURCES else ["initial_std"]  # it is taken as it is
        elif options.implicit == "none":
            under, idle = "implicit: none", ["radius", "inner_gradient"]
        written = [name for name in idle if name in options.model_fields_set]
        problems += [f"{name} has no effect under {under}; remove it" for name in written]
        if options.attention == "bilevel" and phase.name == "finetune":
            problems.append(
                "attention: bilevel learns the attention, it does not fine-tune under it; search in an earlier phase "
                "and name that phase here"
            )
        if options.attention == "bilevel" and options.rank > 1 and phase.members > 1:
            problems.append(
                "repeat.times > 1 averages the factors a1 and a2 of independent searches, which is meaningless "
                "for rank > 1; set times: 1 or rank: 1"
            )
        if options.variant == "released" and options.inner_gradient == "reused":
            problems.append("inner_gradient: reused belongs to variant: paper; the released step has none to reuse")
        if options.variant == "released" and options.implicit == "learning_rate":
            problems.append("the released hypergradient has no learning-rate factor; use implicit: one or none")
        return problems

    def prepare(self, trainee: Trainee, handed: Mapping[str, Handed]) -> None:
        from regft_core.models.weight_views import WeightMixing

        anchor = trainee.anchor("checkpoint")
        generator = trainee.generator("weight_mixup.initial")
        self.mixings: dict[str, WeightMixing] = {}
        for name in trainee.sites.mixable:
            self.mixings[name] = WeightMixing(
                anchor[name],
                rank=self.options.rank,
                form=self.options.form,
                std=self.options.initial_std,
                generator=generator,
            )
            trainee.put_view(name, self.mixings[name])
        if taken := bool(self.declares.needs):
            self._take(handed[self.options.attention])
        self._require_attention_gradients(self.options.attention == "joint")
        if self.options.attention == "joint":  # so that others (SAM, masks, SMART's past weights) have it, too
            mixings = {name.replace(".", ":"): mixing for name, mixing in self.mixings.items()}
            trainee.attach(self.name, torch.nn.ModuleDict(mixings))
        self._shares: list[tuple[int, Tensor]] = []
        if self.declares.passes:
            self.two_level = self._two_level_step()
        clip_norm = self.setting.training.clip_norm if self.options.variant == "released" and taken else None
        self._extra_in_clip = clip_norm is not None
        if self._extra_in_clip:
            self._require_attention_gradients(True)
            for mixing in self.mixings.values():
                mixing.pretrained.requires_grad_(True)

    def _require_attention_gradients(self, needed: bool) -> None:
        """Gradients of the attention only where they are asked for: they cost a pass over W."""
        for parameter in self._attention().values():
            parameter.requires_grad_(needed)

    def _attention(self) -> dict[str, torch.nn.Parameter]:
        return {f"attention/{n}/{key}": p for n, m in self.mixings.items() for key, p in m.named_parameters()}

    def _take(self, handed: Handed) -> None:
        """The attention that an earlier phase learned; ModelError when it was of another form."""
        state = handed.of(self.name)
        attention = self._attention()
        form = FORMS[int(state["form"].item())] if "form" in state else "none at all"
        shapes = all(name in state and state[name].shape == p.shape for name, p in attention.items())
        if form != self.options.form or not shapes:
            raise ModelError(
                "attention-differs",
                f"weight_mixup: phase '{self.options.attention}' learned an attention of form {form}, this phase "
                f"has form {self.options.form}, rank {self.options.rank}; write the same form and rank in both",
            )
        with torch.no_grad():
            for name, parameter in attention.items():
                parameter.copy_(state[name])

    def total_steps(self, rows: int) -> int | None:
        training = self.setting.training
        if self.options.variant != "released" or not self.declares.passes or training.max_steps is not None:
            return None
        return training.epochs * (rows // (training.batch_size * training.accumulation) + 1)

    def hand(self, trainee: Trainee) -> dict[str, Tensor]:
        return {**self._attention(), "form": torch.tensor(float(FORMS.index(self.options.form)))}

    def _decay(self) -> float:
        given, usual = self.options.attention_weight_decay, 0.01 if self.options.variant == "paper" else 0.0
        return usual if given is None else given

    def _two_level_step(self) -> TwoLevelStep:
        from regft_core.training.two_level import TwoLevelStep

        attention, released = self._attention(), self.options.variant == "released"
        group = {"names": [name.replace("/", ":") for name in attention], "params": list(attention.values())}
        rate = self.options.attention_learning_rate
        return TwoLevelStep(
            upper=list(attention.values()),
            # Fused has other last bits than the loop that torch takes on a CPU.
            optimizer=torch.optim.AdamW(
                [group], lr=rate, weight_decay=self._decay(), fused=True if self.trainee.grouped else None
            ),
            rate=rate,
            shape=cosine if released else constant,
            implicit=self.options.implicit or ("one" if released else "learning_rate"),
            radius=self.options.radius,
            interval=self.options.interval,
            inner_gradient=self.options.inner_gradient,
            updated=self._attention_updated,
        )

    def parameter_groups(self) -> list[ParameterGroup]:
        if self.options.attention != "joint":
            return []
        named = {n: p for n, p in self.trainee.named_trainable() if n.startswith(f"attached.{self.name}.")}
        return [ParameterGroup(named, self.options.attention_learning_rate, self._decay())]

    def backward(self, step: Step) -> Tensor:
        """One two-level step; the loop then clips and steps the task weights."""
        draw = 0
        if self.two_level.due(step):
            if self.options.variant == "released":
                self.two_level.stepped(step)
                draw = 4  # masks of its own, after those of the first step and of the three passes between
            else:
                reused = self.two_level.virtual(step)
                if reused is not None:
                    return reused
        loss = step.task_loss(step.forward("train", draw=draw))
        step.backward(loss)
        return loss.detach()

    def _attention_updated(self, index: int, gradient: list[Tensor], validation_loss: Tensor) -> None:
        from regft_core.training.two_level import global_norm

        self._project()
        if self.two_level.implicit_share is not None:
            self._shares.append((index, self.two_level.implicit_share))
        if index % LOG_EVERY == 0 or self.two_level.last:
            self._log_shares()  # before the others: a resumed run, which has logged its own, ends with the same order
        # The criterion that the search lowers; reading it waits for the device, so not in every step.
        if index % LOG_EVERY == 0:
            self.diagnostics.log("weight_mixup.validation_loss", index, float(validation_loss))
            values = torch.cat([p.detach().flatten() for p in self._attention().values()])
            self.diagnostics.log("weight_mixup.attention_mean", index, float(values.mean()))
            self.diagnostics.log("weight_mixup.attention_min", index, float(values.min()))
            self.diagnostics.log("weight_mixup.hypergradient_norm", index, float(global_norm(gradient)))

    def _log_shares(self) -> None:
        """Log the shares measured since the last time; a short search measures them in steps that do not wait."""
        for index, share in self._shares:
            self.diagnostics.log("weight_mixup.implicit_share", index, float(share))
        self._shares.clear()

    def _project(self) -> None:
        attention: list[Tensor] = list(self._attention().values())
        with torch.no_grad():
            torch._foreach_clamp_min_(attention, 0)
            torch._foreach_clamp_max_(attention, 1)

    def clip_gradients(self, step: Step) -> Tensor | None:
        """Released: frozen attention and pretrained copies count in the clip norm."""
        limit = step.setting.training.clip_norm
        if not self._extra_in_clip or limit is None:
            return None
        from regft_core.training.two_level import global_norm

        extra = [t for m in self.mixings.values() for t in (m.pretrained, *m.parameters())]
        own = [p.grad for p in step.weights() if p.grad is not None]
        others = [t.grad for t in extra if t.grad is not None]
        if step.scaler is not None:  # the optimiser does not know the frozen tensors, so nobody has unscaled them
            scale = step.scaler.scale(torch.ones((), device=step.trainee.device))  # get_scale would wait for a GPU
            others = list(torch._foreach_div(others, scale))
        norm = global_norm([*own, *others])
        for tensor in extra:
            tensor.grad = None
        return torch.clamp(limit / (norm + 1e-6), max=1.0)

    def pull_weights(self, step: Step) -> None:
        if self.options.attention == "joint":
            self._project()

    def state(self) -> dict[str, Tensor]:
        if not hasattr(self, "two_level"):
            return {}
        self._log_shares()  # a checkpoint takes what is logged, and waits for the device anyway
        return optimizer_tensors(self.two_level.optimizer, prefix="attention")

    def load_state(self, state: dict[str, Tensor]) -> None:
        if hasattr(self, "two_level"):
            load_optimizer_tensors(self.two_level.optimizer, state, prefix="attention")

    def export(self, trainee: Trainee) -> None:
        trainee.take_views(self.mixings, folded=True)
