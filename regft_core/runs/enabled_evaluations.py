"""The evaluations that ``params.yaml`` switches on, with their options and their code. No torch here."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from regft_core.catalogue import EVALUATIONS
from regft_core.evaluate.analyses import Evaluation, find
from regft_core.hooks.base import Regulariser, implements
from regft_core.hooks.registry import discover, entry_of
from regft_core.models.source import ModelSource
from regft_core.runs.identity.fingerprint import Scope, stage_scope
from regft_core.runs.scopes import family_module, kind_modules, metric_modules, scope_sha256
from regft_core.schema import StrictModel
from regft_core.schema.params import Params


def enabled(params: Params) -> dict[str, tuple[Evaluation, StrictModel]]:
    """Name -> the evaluation and its options, in the order of ``params.yaml``."""
    found = {}
    for name, options in params.evaluations.items():
        evaluation = find(name)
        found[name] = (evaluation, evaluation.Config.model_validate(options))
    return found


def tasks_read(params: Params) -> list[str]:
    """Tasks whose rows the evaluations read, beside that of each run."""
    return [task for evaluation, options in enabled(params).values() for task in evaluation.other_tasks(options)]


def finding_scope(
    evaluation: Evaluation,
    options: StrictModel,
    source: ModelSource,
    kinds: Iterable[str],
    metrics: Iterable[str] = (),
) -> Scope:
    """The code of one evaluation: its file and, as it declares, what makes models, views and scores.

    ``kinds``: of the tasks that it sees. ``metrics``: those that the tasks are judged by.
    """
    own = [EVALUATIONS.entry(evaluation.name), *kind_modules(kinds)]
    if evaluation.needs_model(options):
        own += [*stage_scope("evaluate").entries, family_module(source)]
    if evaluation.reads_views:
        own += _with_views()
    if evaluation.scores:
        own += metric_modules(metrics)
    return stage_scope("evaluation", sorted(set(own)))


def _with_views() -> list[str]:
    """Modules of the regularisers that say something of tokens or views after training."""
    hooks = ("token_confidence", "input_views")

    def has_some(cls: type[Regulariser]) -> bool:
        return any(implements(cls, hook) for hook in hooks)

    return [entry_of(cls) for cls in discover().values() if has_some(cls)]


def evaluations_inputs(
    params: Params, source: ModelSource, kinds: Iterable[str], metrics: Iterable[str]
) -> dict[str, Any]:
    """What the stages that make and show findings depend on; see :func:`finding_scope`."""
    return {
        name: {
            "options": options.model_dump(mode="json"),
            "code": scope_sha256(finding_scope(evaluation, options, source, kinds, metrics)),
            "description": evaluation.description,
        }
        for name, (evaluation, options) in enabled(params).items()
    }
