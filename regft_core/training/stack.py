"""The regularisers of one phase, called in the order of a step."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from typing import Any

from regft_core.catalogue import OPTIMISERS
from regft_core.errors import ModelError
from regft_core.hooks.base import Diagnostics, Handed, MainPass, ParameterGroup, Regulariser, Setting, implements
from regft_core.hooks.declare import ClipSide, Example, FitData, Step, Tensor, Trainee, behind
from regft_core.lazy import Array, torch
from regft_core.models.architectures import architecture_of, architectures
from regft_core.names import nearest
from regft_core.schema.training import TrainingConfig
from regft_core.training.chunks import multiply


class Stack:
    """Instances of the active regularisers of one phase of one run.

    An empty stack is plain fine-tuning. Edits of the model and forward sites follow ``edit_order``. The hooks of
    a step follow their kinds, in the order of ``hooks.base``. Neither names nor the order of the YAML count.
    """

    def __init__(self, entries: Sequence[tuple[type[Regulariser], Any]], setting: Setting) -> None:
        self.setting = setting
        acting = sorted((entry for entry in entries if entry[0].declare(entry[1]).active), key=lambda one: one[0].name)
        self.regularisers = [cls(options, setting) for cls, options in acting]
        self.in_edit_order = sorted(self.regularisers, key=lambda r: r.declares.edit_order)
        self.program = next((r for r in self._with("backward") if r.declares.passes), None)
        self.predictor = next(iter(self._with("predict")), None)
        self.adding = [r for r in self.regularisers if r.adds_terms]
        self.hidden = any(r.declares.needs_hidden for r in self.adding)
        self.unlabelled = sum(r.declares.unlabelled for r in self.regularisers)
        self.anchors = {anchor for r in self.regularisers for anchor in r.declares.anchors}
        # Who acts in a step, found once: a step spends nothing on hooks that nobody implements.
        self.transformer = next(iter(self._with("task_loss")), None)
        self.batching = next(iter(self._with("change_batch")), None)
        self.penalising = self._with("penalty")
        self.changing = self._with("change_gradients")
        self.observing, self.masking = self._by_side("observe_gradients"), self._by_side("gradient_masks")
        self.clipping, self.updating = self._with("clip_gradients"), self._with("before_update")
        self.pulling, self.perturbing = self._with("pull_weights"), self._with("perturb_weights")
        self.watching = self._with("observe_weights")
        masked = any(self.masking.values())
        #: Whether the optimiser steps another gradient than the one that observers see.
        self.masked = bool(self.changing) or masked
        #: Whether the clipped gradient is observed where a change or a mask comes before clipping.
        self._copies = bool(self.observing["after_clip"] and (self.changing or self.masking["before_clip"]))
        #: Whether noise must know what the masks leave alone.
        self._remembers = bool(self.perturbing) and masked

    def _with(self, hook: str) -> list[Regulariser]:
        return [r for r in self.regularisers if implements(type(r), hook)]

    def _by_side(self, hook: str) -> dict[ClipSide, list[Regulariser]]:
        sides: tuple[ClipSide, ...] = ("before_clip", "after_clip")
        return {side: [r for r in self._with(hook) if r.declares.gradients_at == side] for side in sides}

    # ------------------------------------------------------------------------ before the loop

    def skip(self, trainee: Trainee) -> str | None:
        """Why this phase has nothing to do; only where every regulariser says so."""
        reasons = [regulariser.skip(trainee) for regulariser in self.regularisers]
        return "; ".join(filter(None, reasons)) if reasons and all(reasons) else None

    def prepare(self, trainee: Trainee, handed: Mapping[str, Handed]) -> None:
        """Edit the model: starting weights first, then structure, each in ``edit_order``.

        Raises ModelError where a regulariser or the precision does not go with the family.
        """
        precision = self.setting.training.precision
        family = architecture_of(getattr(trainee.model.config, "model_type", None))
        if self.predictor is None and precision != "fp32" and not family.half_precision:
            message = f"training.precision: {family.name} does not run in {precision}"
            raise ModelError("precision-not-possible", f"{message}\n    -> use precision: fp32, or another encoder")
        for regulariser in self.in_edit_order:
            regulariser.trainee = trainee
            refused = regulariser.declares.description.refused_architectures
            if trainee.sites.architecture in refused:
                allowed = sorted({row.name for row in architectures().values()} - {*refused})
                message = f"'{regulariser.name}' does not run on encoders of the family {trainee.sites.architecture}"
                raise ModelError("encoder-does-not-fit", f"{message}\n    -> use one of {', '.join(allowed)}")
        for regulariser in self.in_edit_order:
            regulariser.edit_weights(trainee)
        for regulariser in self.in_edit_order:
            regulariser.prepare(trainee, {name: handed[name] for name in regulariser.declares.needs})
        if self.predictor is not None:  # nothing of the model that it answers for is trained
            trainee.model.requires_grad_(False)

    def fit(self, trainee: Trainee, data: FitData) -> None:
        """``fit`` of all, in ``edit_order``."""
        for regulariser in self.in_edit_order:
            regulariser.fit(trainee, data)

    def marks(self) -> list[str]:
        """Return the marks that the result must carry, as only the prepared model shows it."""
        return [mark for r in self.regularisers for mark in r.marks]

    def total_steps(self, rows: int) -> int | None:
        """Optimiser steps where a regulariser defines them in a way of its own; else None."""
        found = (r.total_steps(rows) for r in self.regularisers)
        return next((steps for steps in found if steps is not None), None)

    def parameter_groups(self) -> list[ParameterGroup]:
        """Groups of all."""
        return [group for r in self.regularisers for group in r.parameter_groups()]

    def learning_rate_factors(self, known: Collection[str]) -> dict[str, float]:
        """Product of all factors of each parameter that has one.

        ``known`` are the names of all parameters, frozen ones too. Raises ModelError where a regulariser names
        another: its factor would be ignored.
        """
        factors: dict[str, float] = {}
        for regulariser in self.regularisers:
            for name, factor in regulariser.learning_rate_factors().items():
                if name not in known:
                    near = nearest(name, known)
                    hint = f"did you mean '{near}'?" if near else "names are those of Trainee.named_raw"
                    what = f"'{regulariser.name}' gives a learning-rate factor to '{name}'"
                    raise ModelError("unknown-parameter", f"{what}, but there is no such parameter; {hint}")
                factors[name] = factors.get(name, 1.0) * factor
        return factors

    def build_optimizer(self, groups: list[dict[str, Any]], training: TrainingConfig) -> torch.optim.Optimizer:
        """The optimiser of the regulariser that owns the update and brings its own; else ``training.optimizer``."""
        for regulariser in self.regularisers:
            if regulariser.declares.optimizer is not None and (own := regulariser.build_optimizer(groups, training)):
                return own
        return OPTIMISERS.load(training.optimizer).build(groups, training)

    # ------------------------------------------------------------------------------- the step

    def backward(self, step: Step) -> Tensor:
        """One batch: the owner's step program, or the plain pass, its added terms, one backward."""
        if self.program is not None:
            total = self.program.backward(step)
            for regulariser in self.penalising:
                if (penalty := regulariser.penalty(step)) is not None:
                    step.backward(penalty, passes=0.0)
                    total = total + penalty.detach()
            return total
        logits, hidden = step.forward(hidden=True) if self.hidden else (step.forward(), None)
        loss = step.task_loss(logits)
        total = loss
        if self.adding:
            main = MainPass(logits, hidden, loss)
            for regulariser in self.adding:
                term = regulariser.terms(step, main)
                total = total if term is None else total + term
        for regulariser in self.penalising:
            penalty = regulariser.penalty(step)
            total = total if penalty is None else total + penalty
        step.backward(total, passes=step.graph_passes)
        return total.detach()

    def before_clip(self, step: Step) -> None:
        """Call what sees or changes the summed, unscaled gradient, in front of the shared clipping."""
        step.masked = self.masked
        for regulariser in self.observing["before_clip"]:
            regulariser.observe_gradients(step)
        if self._copies:
            step.unmasked = {n: p.grad.clone() for n, p in step.trainee.named_trainable() if p.grad is not None}
        for regulariser in self.changing:
            regulariser.change_gradients(step)
        self._mask(step, "before_clip")
        for regulariser in self.clipping:
            factor = regulariser.clip_gradients(step)
            if factor is not None:
                gradients = [p.grad for p in step.weights() if p.grad is not None]
                torch._foreach_mul_(gradients, factor)
                if step.unmasked is not None:
                    torch._foreach_mul_(list(step.unmasked.values()), factor)

    def after_clip(self, step: Step, norm: Tensor) -> None:
        """Call what sees or masks the clipped gradient; ``norm`` is the norm before clipping, a scalar."""
        limit = step.setting.training.clip_norm
        if step.unmasked is not None and limit is not None:
            # The factor of torch.nn.utils.clip_grad_norm_.
            torch._foreach_mul_(list(step.unmasked.values()), torch.clamp(limit / (norm + 1e-6), max=1.0))
        for regulariser in self.observing["after_clip"]:
            regulariser.observe_gradients(step)
        step.unmasked = None
        self._mask(step, "after_clip")
        for regulariser in self.updating:
            regulariser.before_update(step)

    def _mask(self, step: Step, side: ClipSide) -> None:
        with torch.no_grad():
            for regulariser in self.masking[side]:
                for name, mask in regulariser.gradient_masks(step):
                    gradient = step.trainee.parameter(name).grad
                    if gradient is None:
                        continue
                    multiply(gradient, mask)
                    if self._remembers and not isinstance(mask, float):
                        moves = (mask != 0).expand_as(gradient)
                        step.moves[name] = step.moves[name] & moves if name in step.moves else moves

    def after_update(self, step: Step) -> None:
        """Call what sees or changes the weights after the optimiser: pulls, then noise, then what only reads them."""
        for regulariser in self.pulling:
            regulariser.pull_weights(step)
        for regulariser in self.perturbing:
            regulariser.perturb_weights(step)
        for regulariser in self.watching:
            regulariser.observe_weights(step)

    def finish(self, trainee: Trainee) -> None:
        """Put what the run is to give instead of its last weights; after the last step, in ``edit_order``."""
        for regulariser in self.in_edit_order:
            regulariser.finish(trainee)

    def state(self) -> dict[str, Tensor]:
        """Tensors of all, under ``<regulariser>.<name>``."""
        return {f"{r.name}.{name}": tensor for r in self.regularisers for name, tensor in r.state().items()}

    def load_state(self, state: dict[str, Tensor]) -> None:
        """Restore :meth:`state`."""
        for r in self.regularisers:
            own = behind(f"{r.name}.", state)
            r.load_state({name: tensor.to(r.trainee.device, copy=True) for name, tensor in own.items()})

    # ------------------------------------------------------------------------- after the loop

    def hand(self, trainee: Trainee) -> dict[str, Tensor]:
        """Copies of the state for later phases, named as in :meth:`state`."""
        return _copied((r, r.hand(trainee)) for r in self.regularisers)

    def put_views(self, trainee: Trainee, handed: Mapping[str, Handed], state: Mapping[str, Tensor]) -> None:
        """Put the views that hand over their trained tensors, with the ``state`` that :meth:`hand` gave."""
        for regulariser in self.in_edit_order:
            if regulariser.declares.hands_over == "trained":
                regulariser.trainee = trainee
                regulariser.prepare(trainee, {name: handed[name] for name in regulariser.declares.needs})
                with torch.no_grad():
                    for name, tensor in regulariser.hand(trainee).items():
                        tensor.copy_(state[f"{regulariser.name}.{name}"])

    def keep(self, trainee: Trainee) -> dict[str, Tensor]:
        """Copies of the tensors for evaluation and figures, named as in :meth:`state`."""
        return _copied((r, r.keep(trainee)) for r in self.regularisers)

    def decision(self) -> dict[str, Tensor]:
        """The decision that a regulariser fitted, as tensors; empty where none did."""
        return next((fitted.tensors() for r in self.regularisers if (fitted := r.decision()) is not None), {})

    def export(self, trainee: Trainee) -> None:
        """Leave a plain model: undo the edits in reverse.

        Before the last phase, a view whose trained tensors are handed over stays.
        """
        for regulariser in reversed(self.in_edit_order):
            if self.setting.final or regulariser.declares.hands_over == "folded":
                regulariser.export(trainee)

    def rebuild(self, trainee: Trainee, kept: Mapping[str, Tensor]) -> None:
        """Give a plain model what inference needs beside its weights."""
        for regulariser in self.in_edit_order:
            regulariser.rebuild(trainee, behind(f"{regulariser.name}.", kept))

    def predict(self, trainee: Trainee | None, kept: Mapping[str, Tensor], examples: Sequence[Example]) -> Array:
        """Answers of the regulariser that owns the prediction."""
        assert self.predictor is not None
        return self.predictor.predict(trainee, behind(f"{self.predictor.name}.", kept), examples)

    def diagnostics(self) -> Diagnostics:
        """Logged values of all."""
        return Diagnostics(values=[value for r in self.regularisers for value in r.diagnostics.values])

    def load_diagnostics(self, values: Sequence[Sequence[Any]]) -> None:
        """Restore logged values: (name, step, value)."""
        for r in self.regularisers:
            prefix = f"{r.name}."
            r.diagnostics.values = [(str(n), int(s), float(v)) for n, s, v in values if str(n).startswith(prefix)]


def _copied(parts: Any) -> dict[str, Tensor]:
    return {f"{r.name}.{name}": tensor.detach().cpu().clone() for r, named in parts for name, tensor in named.items()}
