"""Which code determines a result: what the keys of runs and the DVC stages depend on.

DVC does not follow imports: a corrected loss would silently keep old results. So the definitions
that an entry point reaches are hashed by what they mean (``syntax``, ``code_graph``), together with the
data files beside them and the versions of the packages that they use. What counts follows from the names in
the code; the tables here say what does not, and why. A run has the shared training code and the files of the
entries that it uses (regularisers, kind of task, encoder family, optimiser), not those of others. Where a definition
stands is in no hash: code may move.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal, TypeVar

from regft_core.io.canonical import canonical_json, sha256_text
from regft_core.runs.identity.code_graph import CodeGraph, Reach
from regft_core.runs.identity.distributions import versions

PACKAGES = ("regft_core", "stages")

#: What warns of predictions and calls them collapsed, beside the kind's own file.
JUDGING = "regft_core.kinds._judging"
#: What reads labels and groups rows for the kinds.
READING = "regft_core.kinds._reading"
#: Modules (with all below them) that change no number of any run or table. What is reached and not here counts.
NEVER: Mapping[str, str] = {
    "regft_core.errors": "texts of refusals, and exit codes",
    "regft_core.io": "writes files whole or not at all; what is read is hashed by content",
    "regft_core.progress": "draws on the terminal",
    "regft_core.catalogue": "finds files by their names; the file in use is an entry",
    "regft_core.lazy": "when a package is imported, not what it computes",
    "regft_core.runs.identity": "identifies runs",
    "regft_core.runs.store": "keeps runs; tensors pass through bit by bit",
    "regft_core.grid": "schedules runs",
    "regft_core.models.devices": "device and threads are recorded beside a result",
    "regft_core.models.products": "the library of products is recorded beside a result",
    "regft_core.shipped": "files that are read as a project's are; what they hold is in the key, resolved",
}
#: Modules that cannot change what is computed with a configuration that passed.
EXEMPT: Mapping[str, str] = {
    **NEVER,
    "regft_core.schema": "refuses configurations; what passes is in the key, resolved",
    "regft_core.settings": "refuses configurations; what passes is in the key, resolved",
}
_TRAINED: Mapping[str, str] = {
    **EXEMPT,
    "regft_core.hooks.says": "what methods say about themselves; no training code reads it",
    READING: "reads labels and groups rows, which are in the key, by content",
    JUDGING: "judges finished runs; what scores them names it",
}
_ROWS: Mapping[str, str] = {**EXEMPT, JUDGING: "judges predictions, and there are none yet"}
#: What turns texts into token ids, beside the tokenizer's files.
TOKENS = ("regft_core.data.encode", "regft_core.models.load")
#: What builds the model and the batches of one phase and runs its loop, and what makes its tokens.
TRAINING = ("regft_core.runs.training_run", *TOKENS)

_FINISHED: Mapping[str, str] = {
    **EXEMPT,
    "regft_core.runs": "finds inputs and makes the key, which has them by content; what computes is an entry",
    "regft_core.training": "trains; its results are hashed by content",
    READING: "reads labels and groups rows, which are in the key, by content",
    "regft_core.hooks.says": "what methods say about themselves",
}
StageName = Literal["dataset", "subsample", "lengths", "evaluate", "evaluation", "merge", "report"]


@dataclass(frozen=True)
class Scope:
    """Whose code is meant: entry modules, and what of their reach does not count.

    Attributes:
        entries: modules (or paths of files that are none) that count, with what they reach.
        exempt: modules (with all below them) that do not, each with the reason.
    """

    entries: tuple[str, ...]
    exempt: Mapping[str, str]


#: Scope of each stage but those that train.
STAGES: Mapping[StageName, Scope] = {
    "dataset": Scope(("regft_core.data.prepare",), _ROWS),
    "subsample": Scope(("regft_core.data.subsample",), _ROWS),
    "lengths": Scope(
        ("regft_core.data.lengths", "regft_core.grid.lengths"),
        {
            **EXEMPT,
            "regft_core.models": "finds the encoder; the bytes of its tokenizer and its limit are in the key",
            "regft_core.hooks.says": "what methods say about themselves",
        },
    ),
    "evaluate": Scope(
        (
            "regft_core.runs.evaluate",
            "regft_core.runs.finished_model",
            "regft_core.evaluate.score",
            "regft_core.evaluate.predict",
            "regft_core.data.batches",
            *TOKENS,
            JUDGING,
        ),
        _FINISHED,
    ),
    # One evaluation beyond the scores: what it sees and says; its own file is added.
    "evaluation": Scope(("regft_core.evaluate.evaluated", "regft_core.evaluate.findings", JUDGING), EXEMPT),
    # Which members of a soup are averaged, and how, beyond what trained each of them.
    "merge": Scope(
        ("regft_core.runs.merge", "regft_core.evaluate.score", "regft_core.evaluate.predict", JUDGING),
        _FINISHED,
    ),
    # The report reads its own defaults off the schema, so config counts for it.
    "report": Scope(("regft_core.report", "regft_core.schema.params"), NEVER),
}


def package_root() -> Path:
    """Return the directory that holds this very ``regft_core``."""
    return Path(__file__).resolve().parents[3]


def training_scope(own: Sequence[str]) -> Scope:
    """Scope of a training run; ``own``: the modules of its regularisers, kind of task, encoder family and optimiser."""
    return Scope((*TRAINING, *own), _TRAINED)


def stage_scope(name: StageName, own: Sequence[str] = ()) -> Scope:
    """Scope of a stage; ``own``: the entries (kinds of task, metrics, encoder family) that it uses."""
    scope = STAGES[name]
    return Scope((*scope.entries, *own), scope.exempt)


def graph_of(root: Path | None = None, packages: Sequence[str] = PACKAGES) -> CodeGraph:
    """Return the modules under ``root`` (this very installation by default) as they are now."""
    return CodeGraph(package_root() if root is None else root, packages)


def describe(graph: CodeGraph, reach: Reach) -> dict[str, Any]:
    """Return ``{"sha256", "modules", "packages"}`` of a reach; see :func:`code_of`. Callers must not change it."""
    files = graph.resources(reach)
    packages = versions(reach.external)
    # Every run asks for the same several times: hashed once for each reach, as long as files and versions are these.
    note = "described", tuple(sorted(files.items())), tuple(packages.items())
    if note not in reach.notes:
        content = {"code": reach.sha256, "files": sorted(map(list, files.values())), "packages": packages}
        modules = reach.modules | {os.path.relpath(path, graph.root): sha256 for path, (_, sha256) in files.items()}
        reach.notes[note] = {
            "sha256": sha256_text(canonical_json(content)),
            "modules": dict(sorted(modules.items())),
            "packages": packages,
        }
    found: dict[str, Any] = reach.notes[note]
    return found


def code_of(
    entries: Sequence[str],
    root: Path | None = None,
    exempt: Collection[str] = EXEMPT,
    *,
    packages: Sequence[str] = PACKAGES,
) -> dict[str, Any]:
    """Return the fingerprint of all code that ``entries`` reach.

    Args:
        entries: modules, or paths of files; they count even below an exempt package.
        root: directory that holds the packages; that of this installation by default.
        exempt: modules that do not count, with all below them and all that only they reach.
        packages: the project's own top-level packages.

    Returns:
        ``sha256``: what the definitions that are reached mean, the data files beside them, and ``packages``:
        distribution -> version (None: not installed) of the packages from elsewhere that they use.
        ``modules``: module (or data file) -> hash of what is reached of it, to name what has changed.

    Raises:
        ConfigError: an entry does not exist, or a file is not valid Python.
    """

    def take() -> dict[str, Any]:
        graph = graph_of(root, packages)
        return describe(graph, graph.reach(entries, exempt))

    return once(("code", tuple(entries), root, frozenset(exempt), tuple(packages)), take)


T = TypeVar("T")
#: What was found out since ``one_moment`` began.
_moment: dict[tuple[Any, ...], Any] | None = None


@contextmanager
def one_moment() -> Iterator[None]:
    """Within the block what ``once`` is asked for is found out once: thousands of keys are told of things as they are.

    For planning, where nothing is trained. Whoever trains looks again (``guard.LoadedCode``).
    """
    global _moment
    before, _moment = _moment, {} if _moment is None else _moment
    try:
        yield
    finally:
        _moment = before


def in_one_moment() -> bool:
    """Whether a block of ``one_moment`` runs, in which nothing is trained."""
    return _moment is not None


def once(what: tuple[Any, ...], make: Callable[[], T]) -> T:
    """Return ``make()``; within ``one_moment``, what it was the first time that ``what`` was asked for."""
    if _moment is None:
        return make()
    if what not in _moment:
        _moment[what] = make()
    found: T = _moment[what]
    return found


def stage_code(name: StageName, own: Sequence[str] = (), root: Path | None = None) -> dict[str, Any]:
    """Return the fingerprint (see :func:`code_of`) of a stage that does not train."""
    scope = stage_scope(name, own)
    return code_of(scope.entries, root, scope.exempt)
