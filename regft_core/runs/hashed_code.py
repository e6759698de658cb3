"""The code in the key of a result: of a phase, a merge, an evaluation, of tokens, of rows. No torch here."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal

from regft_core.catalogue import KINDS, METRICS
from regft_core.disk.reading import read_json
from regft_core.models.source import ModelSource

if TYPE_CHECKING:
    from regft_core.models.architectures import Architecture

#: Modules (with all below them) that change no number, unless they are entries.
NEVER: Mapping[str, str] = {
    "regft_core.errors": "texts of refusals, and exit codes",
    "regft_core.names": "texts",
    "regft_core.catalogue": "finds files by their names; the file in use is an entry",
    "regft_core.disk": "writes files whole or not at all; what is read is hashed by content",
    "regft_core.progress": "draws on the terminal",
    "regft_core.schema": "refuses configurations; what passes is in the key, resolved",
    "regft_core.settings": "refuses configurations; what passes is in the key, resolved",
    "regft_core.hooks.description": "documentation of methods",
    "regft_core.models.source": "finds encoders, whose bytes are in the key",
    "regft_core.models.devices": "device and threads are recorded beside a result",
    "regft_core.models.products": "the library of products is recorded beside a result",
    "regft_core.runs": "finds inputs and makes the key, which has them by content; what computes is an entry",
    "regft_core.grid": "schedules runs",
}
StageName = Literal[
    "dataset", "subsample", "lengths", "training", "merge", "scored_merge", "evaluate", "evaluation", "report"
]


@dataclass(frozen=True)
class Scope:
    """Modules that count, and those that do not.

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
_SCORES = ("regft_core.evaluate.score", "regft_core.evaluate.predict", JUDGING)
#: Scores of epochs, to choose one or to show how the score went.
CHECKPOINT_RULE = "regft_core.runs.epoch_scores"
#: What gives an earlier phase's answers to the rows of a phase that learns from them.
ANSWERS = "regft_core.runs.encoder_tensors"
STAGES: Mapping[StageName, Scope] = {
    "dataset": Scope(("regft_core.data.prepare",), (JUDGING,)),
    "subsample": Scope(("regft_core.data.subsample",), (JUDGING,)),
    "lengths": Scope(("regft_core.data.lengths", "regft_core.grid.lengths"), ("regft_core.models", "regft_core.hooks")),
    # What builds the model and the batches of one phase and runs its loop, and what makes its tokens.
    "training": Scope(("regft_core.runs.training_run", *TOKENS), (READING, JUDGING)),
    # The members of a phase become one, by a rule whose file is added: by the tensors alone, or by scores of members.
    "merge": Scope(("regft_core.training.merges",), ("regft_core",)),
    "scored_merge": Scope(
        ("regft_core.training.merges", "regft_core.runs.epoch_scores", *_SCORES),
        (READING, "regft_core.training"),
    ),
    # The weights that training leaves are hashed by content.
    "evaluate": Scope(
        ("regft_core.runs.evaluate", "regft_core.runs.finished_model", "regft_core.data.batches", *TOKENS, *_SCORES),
        (READING, "regft_core.training", "regft_core.data.splits"),
    ),
    # One evaluation beyond the scores; its own file is added.
    "evaluation": Scope(("regft_core.evaluate.evaluated", "regft_core.evaluate.analysis_result", JUDGING)),
    "report": Scope(("regft_core.report", "regft_core.schema.params")),
}


def scope_of(
    stage: StageName,
    own: Iterable[str] = (),
    *,
    kinds: Iterable[str] = (),
    metrics: Iterable[str] = (),
    source: ModelSource | None = None,
) -> Scope:
    """Return the code of a stage with ``own`` entries and the files that no import names.

    Those are kinds of task, metrics and the family of the encoder: the tasks and the configuration name them.
    """
    used = {*own, *map(KINDS.entry, kinds), *map(METRICS.entry, metrics)}
    if source is not None:
        used.add(family(source).module)
    return Scope((*STAGES[stage].entries, *sorted(used)), STAGES[stage].without)


def family(source: ModelSource) -> Architecture:
    """Return the encoder's family. Raises ModelError for one that is not known."""
    from regft_core.models.architectures import architecture_of

    model_type = read_json(source.path / "config.json").get("model_type")
    return architecture_of(model_type, where=f"model '{source.name}'")
