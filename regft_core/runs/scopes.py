"""Whose code is in the key of a phase, of a merge, of an evaluation, of tokens. No torch here."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING

from regft_core.catalogue import KINDS, METRICS, OPTIMISERS
from regft_core.hooks import listed
from regft_core.hooks.registry import entry_of
from regft_core.io.reading import read_json
from regft_core.models.source import ModelSource
from regft_core.runs.identity.fingerprint import EXEMPT, JUDGING, TOKENS, Scope, code_of, stage_scope, training_scope
from regft_core.schema.method import Phase

if TYPE_CHECKING:
    from regft_core.models.architectures import Architecture

#: What makes token ids of texts, beside the tokenizer's files.
TOKENISER = Scope(TOKENS, EXEMPT)
#: What computes vectors of a frozen encoder, beside its family's file.
FEATURES = ("regft_core.models.features", "regft_core.models.load", "regft_core.data.batches")
#: What judges an epoch, to choose one or to show how the score went.
CHECKPOINT_RULE = "regft_core.runs.checkpoint_rule"
#: What averages the members of a phase.
MEAN = Scope(("regft_core.runs.averaging",), EXEMPT)


def scope_sha256(scope: Scope) -> str:
    """The fingerprint of a scope, as ``LoadedCode`` of the same scope has it."""
    return str(code_of(scope.entries, exempt=scope.exempt)["sha256"])


def phase_scope(
    entries: Sequence[listed.Entry],
    phase: Phase,
    source: ModelSource,
    kinds: Iterable[str],
    metrics: Iterable[str] = (),
) -> Scope:
    """The code that trains a phase: the shared part, and what this phase uses and another may not.

    That is its active regularisers, and the kind of its rows' task, the encoder's family and the optimiser, which no
    import names: the task, the encoder and the protocol do. Where epochs are judged, what judges them counts too
    (``metrics``: by which).
    """
    own = {entry_of(cls) for cls, _ in listed.active(entries)}
    if phase.training.optimizer in OPTIMISERS.names():  # else a regulariser brings its own
        own.add(OPTIMISERS.entry(phase.training.optimizer))
    if phase.training.judges_epochs:
        own |= {CHECKPOINT_RULE, JUDGING, *metric_modules(metrics)}
    return training_scope(sorted({*own, *kind_modules(kinds), family_module(source)}))


def feature_scope(source: ModelSource) -> Scope:
    """The code that computes vectors of a frozen encoder from tokens."""
    return Scope((*FEATURES, family_module(source)), EXEMPT)


def merge_scope(merge: str, kinds: Iterable[str], metrics: Iterable[str], source: ModelSource) -> Scope:
    """The code that merges members; a greedy soup scores them by the metrics (and trains nothing)."""
    if merge == "mean":
        return MEAN
    scope = stage_scope("merge", [*kind_modules(kinds), *metric_modules(metrics), family_module(source)])
    return Scope((*scope.entries, *MEAN.entries), scope.exempt)


def evaluation_scope(kinds: Iterable[str], metrics: Iterable[str], source: ModelSource) -> Scope:
    """The code that evaluates these kinds of task with these metrics on this family of encoders."""
    return stage_scope("evaluate", [*kind_modules(kinds), *metric_modules(metrics), family_module(source)])


def report_scope(metrics: Iterable[str]) -> Scope:
    """The code that reports on these metrics, whose intervals it computes by their own files."""
    return stage_scope("report", metric_modules(metrics))


def kind_modules(kinds: Iterable[str]) -> list[str]:
    """The files of some kinds of task."""
    return sorted({KINDS.entry(name) for name in kinds})


def metric_modules(metrics: Iterable[str]) -> list[str]:
    """The files of some metrics."""
    return sorted({METRICS.entry(name) for name in metrics})


def family(source: ModelSource) -> Architecture:
    """The encoder's family. Raises ModelError for one that is not known."""
    from regft_core.models.architectures import architecture_of

    model_type = read_json(source.path / "config.json").get("model_type")
    return architecture_of(model_type, where=f"model '{source.name}'")


def family_module(source: ModelSource) -> str:
    """The file of the encoder's family."""
    return family(source).module
