"""The regularisers of one run, called in the order of a step."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from regft_core.methods.base import Diagnostics, ParameterGroup, Regulariser, SearchRun, Setting

if TYPE_CHECKING:
    from torch import Tensor

    from regft_core.methods.compose import Entry
    from regft_core.training.step import Step
    from regft_core.training.trainee import Trainee


class Stack:
    """Instances of the active regularisers of a method, for one phase of one run.

    An empty stack is plain fine-tuning. Forward sites run in ``forward_order``; every other
    hook runs in the order of the YAML list.
    """

    def __init__(self, entries: Sequence[Entry], search: Any, setting: Setting) -> None:
        self.setting = setting
        self.regularisers = [cls(options, search, setting) for cls, options in entries if cls.active(options)]
        phase = "finetune" if setting.phase == "finetune" else "search"
        owners = [r for r in self.regularisers if type(r).program(r.options, phase)]
        self.program: Regulariser | None = owners[0] if owners else None
        searchers = [r for r in self.regularisers if type(r).search_phase(r.options)]
        self.searcher: Regulariser | None = searchers[0] if searchers else None

    def search_runs(self, rows: int) -> list[SearchRun]:
        return self.searcher.search_runs(rows) if self.searcher is not None else []

    def prepare(self, trainee: Trainee, handed: dict[str, Tensor] | None) -> None:
        for regulariser in sorted(self.regularisers, key=lambda r: r.forward_order):
            regulariser.prepare(trainee, handed if regulariser is self.searcher else None)

    def backward(self, step: Step) -> Tensor:
        """One batch: the owner's step program, or a single pass and backward."""
        if self.program is not None:
            return self.program.backward(step)
        loss = step.task_loss(step.forward())
        step.backward(loss)
        return loss.detach()

    def parameter_groups(self) -> list[ParameterGroup]:
        return [group for r in self.regularisers for group in r.parameter_groups()]

    def frozen(self) -> set[str]:
        return {name for r in self.regularisers for name in r.frozen()}

    def before_clip(self, step: Step) -> None:
        for regulariser in self.regularisers:
            regulariser.before_clip(step)

    def after_clip(self, step: Step) -> None:
        for regulariser in self.regularisers:
            regulariser.after_clip(step)

    def after_update(self, step: Step) -> None:
        for regulariser in self.regularisers:
            regulariser.after_update(step)

    def state(self) -> dict[str, Tensor]:
        return {f"{r.name}.{key}": value for r in self.regularisers for key, value in r.state().items()}

    def load_state(self, state: dict[str, Tensor]) -> None:
        for r in self.regularisers:
            prefix = f"{r.name}."
            r.load_state({key[len(prefix) :]: value for key, value in state.items() if key.startswith(prefix)})

    def export(self, trainee: Trainee) -> None:
        for regulariser in self.regularisers:
            regulariser.export(trainee)

    def diagnostics(self) -> Diagnostics:
        return Diagnostics([value for r in self.regularisers for value in r.diagnostics.values])

    def load_diagnostics(self, values: Sequence[Sequence[Any]]) -> None:
        for r in self.regularisers:
            prefix = f"{r.name}."
            r.diagnostics.values = [(str(n), int(s), float(v)) for n, s, v in values if str(n).startswith(prefix)]
