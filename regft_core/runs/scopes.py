"""Whose code is in the key of a result: of a phase, a merge, an evaluation, of tokens, of rows. No torch here."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal

from regft_core.catalogue import KINDS, METRICS, OPTIMISERS
from regft_core.hooks import listed
from regft_core.hooks.registry import entry_of
from regft_core.io.reading import read_json
from regft_core.models.source import ModelSource
from regft_core.schema.method import Phase

if TYPE_CHECKING:
    from regft_core.models.architectures import Architecture

#: Modules (with all below them) that change no number, unless they are entries.
NEVER: Mapping[str, str] = {
    "regft_core.errors": "texts of refusals, and exit codes",
    "regft_core.names": "texts",
    "regft_core.catalogue": "finds files by their names; the file in use is an entry",
    "regft_core.io": "writes files whole or not at all; what is read is hashed by content",
    "regft_core.progress": "draws on the terminal",
    "regft_core.schema": "refuses configurations; what passes is in the key, resolved",
    "regft_core.settings": "refuses configurations; what passes is in the key, resolved",
    "regft_core.hooks.says": "what methods say about themselves",
    "regft_core.models.source": "finds encoders, whose bytes are in the key",
    "regft_core.models.devices": "device and threads are recorded beside a result",
    "regft_core.models.products": "the library of products is recorded beside a result",
    "regft_core.runs": "finds inputs and makes the key, which has them by content; what computes is an entry",
    "regft_core.grid": "schedules runs",
}
StageName = Literal["dataset", "subsample", "lengths", "evaluate", "evaluation", "merge", "report"]


@dataclass(frozen=True)
class Scope:
    """Whose code it is.

    Attributes:
        entries: modules, or paths of files that are none, which count with all that they import.
        without: modules that do not, beside ``NEVER``.
    """

    entries: tuple[str, ...]
    without: tuple[str, ...] = ()

    def counts(self, module: str) -> bool:
        """Whether a module is part of it when something imports it; the version of regft is not."""
        if module == "regft_core":
            return False
        dotted = f"{module}."
        return module in self.entries or not any(dotted.startswith(f"{name}.") for name in (*NEVER, *self.without))


#: What reads labels and groups rows (in keys by content), and what warns of finished predictions.
READING, JUDGING = "regft_core.kinds._reading", "regft_core.kinds._judging"
#: What turns texts into token ids, beside the tokenizer's files.
TOKENS = ("regft_core.data.encode", "regft_core.models.load")
#: What builds the model and the batches of one phase and runs its loop, and what makes its tokens.
TRAINING = ("regft_core.runs.training_run", *TOKENS)
_SCORES = ("regft_core.evaluate.score", "regft_core.evaluate.predict", JUDGING)
STAGES: Mapping[StageName, Scope] = {
    "dataset": Scope(("regft_core.data.prepare",), (JUDGING,)),
    "subsample": Scope(("regft_core.data.subsample",), (JUDGING,)),
    "lengths": Scope(("regft_core.data.lengths", "regft_core.grid.lengths"), ("regft_core.models", "regft_core.hooks")),
    # The weights that training leaves are hashed by content.
    "evaluate": Scope(
        ("regft_core.runs.evaluate", "regft_core.runs.finished_model", "regft_core.data.batches", *TOKENS, *_SCORES),
        (READING, "regft_core.training", "regft_core.data.splits"),
    ),
    # One evaluation beyond the scores; its own file is added.
    "evaluation": Scope(("regft_core.evaluate.evaluated", "regft_core.evaluate.findings", JUDGING)),
    # Which members of a soup are averaged, and how.
    "merge": Scope(("regft_core.runs.merge", *_SCORES), (READING, "regft_core.training")),
    "report": Scope(("regft_core.report", "regft_core.schema.params", "regft_core.schema.report")),
}


def training_scope(own: Sequence[str]) -> Scope:
    """Scope of a training run; ``own``: the modules of its regularisers, kind of task, encoder family and optimiser."""
    return Scope((*TRAINING, *own), (READING, *([] if JUDGING in own else [JUDGING])))


def stage_scope(name: StageName, own: Sequence[str] = ()) -> Scope:
    """Scope of a stage; ``own``: the entries (kinds of task, metrics, encoder family) that it uses."""
    scope = STAGES[name]
    return Scope((*scope.entries, *own), scope.without)


#: What makes token ids of texts, beside the tokenizer's files.
TOKENISER = Scope(TOKENS)
#: What computes vectors of a frozen encoder, beside its family's file.
FEATURES = ("regft_core.models.features", "regft_core.models.load", "regft_core.data.batches")
#: What judges an epoch, to choose one or to show how the score went.
CHECKPOINT_RULE = "regft_core.runs.epoch_scores"
#: What averages the members of a phase.
MEAN = Scope(("regft_core.runs.merge",), ("regft_core",))


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
    return Scope((*FEATURES, family_module(source)))


def merge_scope(merge: str, kinds: Iterable[str], metrics: Iterable[str], source: ModelSource) -> Scope:
    """The code that merges members; a greedy soup scores them by the metrics (and trains nothing)."""
    if merge == "mean":
        return MEAN
    return stage_scope("merge", [*kind_modules(kinds), *metric_modules(metrics), family_module(source)])


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
