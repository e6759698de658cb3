"""Which code determines a result: what the keys of runs and the DVC stages depend on.

DVC does not follow imports: a corrected loss would silently keep old results. So the modules
that an entry point reaches are hashed by what they mean (``syntax``), together with the
versions of the packages that they import. What counts follows from the imports; the tables
here say what does not, and why. A run has the shared training code and the files of the
entries that it uses (regularisers, kind of task, encoder family, optimiser), not those of others.
"""

from __future__ import annotations

import ast
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal, TypeVar

from regft_core.errors import ConfigError, Problem
from regft_core.io import canonical_json, sha256_text
from regft_core.runs.code_graph import CodeGraph, Reach
from regft_core.runs.distributions import versions
from regft_core.runs.imports import imported_names
from regft_core.runs.syntax import meaning

PACKAGES = ("regft_core", "stages")

#: Modules that find entries by scanning files -> the package with those files.
LOOKUPS: Mapping[str, str] = {
    "regft_core.hooks.registry": "regft_core.methods",
    "regft_core.models.architectures": "regft_core.models.families",
    "regft_core.models.families": "regft_core.models.families",
    "regft_core.training.optimisers": "regft_core.training.optimisers",
    "regft_core.kinds": "regft_core.kinds",
    "regft_core.metrics": "regft_core.metrics",
    "regft_core.evaluations": "regft_core.evaluations",
}

#: What warns of predictions and calls them collapsed, beside the kind's own file.
JUDGING = "regft_core.kinds._judging"
#: Modules (with all below them) that change no number of any run or table.
NEVER: Mapping[str, str] = {
    "regft_core.errors": "texts of refusals, and exit codes",
    "regft_core.io": "writes files whole or not at all; what is read is hashed by content",
    "regft_core.progress": "draws on the terminal",
    "regft_core.kinds._base": "lists the questions; the file of the kind in use has the answers, and is an entry",
    "regft_core.lazy": "when a package is imported, not what it computes",
    "regft_core.tracking": "mirrors finished runs into MLflow",
    "regft_core.runs": "keeps, schedules and identifies runs; tensors pass through bit by bit",
}
#: Modules that cannot change what a training run computes. Everything else that is reached counts.
EXEMPT: Mapping[str, str] = {
    **NEVER,
    "regft_core.config": "refuses configurations; what passes is in the key, resolved",
    "regft_core.reporting": "shows finished runs",
    "regft_core.statistics": "compares finished runs",
    "regft_core.phases": "finds inputs and makes the key, which has them by content; what computes is an entry",
    "regft_core.hooks.says": "what methods say about themselves; no training code reads it",
    "regft_core.hooks.compose": "settles the protocol, which is in the key, resolved",
    "regft_core.data.prepare": "makes the datasets; the rows are in the key, by content",
    "regft_core.data.sources": "reads what datasets are made from; the rows are in the key, by content",
    "regft_core.data.declare": "checks rows against their task; the rows are in the key, by content",
    "regft_core.data.builtin": "generates datasets; the rows are in the key, by content",
    "regft_core.data.builtin_words": "generates datasets; the rows are in the key, by content",
    "regft_core.data.subsample": "draws the rows, which are in the key, by content",
    "regft_core.kinds._reading": "reads labels and groups rows, which are in the key, by content",
    JUDGING: "judges finished runs; what scores them names it",
}
#: The module that builds the model and the batches of one phase and runs its loop.
TRAINING = ("regft_core.phases.training_run",)

_CONFIG = {"regft_core.config": "refuses configurations; DVC watches the values themselves"}
_NO_JUDGING = {JUDGING: "judges predictions, and there are none yet"}
_NO_TRAINING = {
    "regft_core.training": "trains; its results are hashed by content",
    "regft_core.hooks": "trains; its results are hashed by content",
    "regft_core.methods": "trains; its results are hashed by content",
}
_NO_SOURCES = {
    name: reason
    for name, reason in EXEMPT.items()
    if name.startswith("regft_core.data.") and name != "regft_core.data.prepare"
}
StageName = Literal["dataset", "subsample", "lengths", "evaluate", "evaluation", "merge", "report"]


@dataclass(frozen=True)
class Scope:
    """Whose code is meant: entry modules, what of their reach does not count, and the data files beside it.

    Attributes:
        entries: modules that count, with what they import.
        exempt: modules (with all below them) that do not, each with the reason.
        resources: whether data files of the reached packages (templates) count too.
    """

    entries: tuple[str, ...]
    exempt: Mapping[str, str]
    resources: bool = False


#: Scope of each stage but those that train.
STAGES: Mapping[StageName, Scope] = {
    "dataset": Scope(("regft_core.data.prepare",), {**NEVER, **_CONFIG, **_NO_JUDGING}, resources=True),
    "subsample": Scope(
        ("regft_core.data.subsample",), {**NEVER, **_CONFIG, **_NO_SOURCES, **_NO_JUDGING}, resources=True
    ),
    "lengths": Scope(
        ("regft_core.data.lengths", "regft_core.phases.lengths"),
        {**EXEMPT, "regft_core.models": "finds the encoder; the bytes of its tokenizer and its limit are in the fact"},
    ),
    "evaluate": Scope(
        (
            "regft_core.phases.evaluate",
            "regft_core.phases.trained",
            "regft_core.evaluation.evaluate",
            "regft_core.evaluation.predict",
            "regft_core.data.batches",
            "regft_core.data.encode",
            "regft_core.models.load",
            JUDGING,
        ),
        {**EXEMPT, **_NO_TRAINING},
        resources=True,
    ),
    # One evaluation beyond the scores: what it sees and says; its own file is added.
    "evaluation": Scope(("regft_core.evaluation.evaluated", "regft_core.evaluation.findings", JUDGING), EXEMPT),
    # Which members of a soup are averaged, and how, beyond what trained each of them.
    "merge": Scope(
        ("regft_core.phases.merge", "regft_core.evaluation.evaluate", "regft_core.evaluation.predict", JUDGING),
        {**EXEMPT, **_NO_TRAINING},
    ),
    # The report reads its own defaults off the schema, so config counts for it.
    "report": Scope(("regft_core.reporting",), NEVER, resources=True),
}


def package_root() -> Path:
    """Return the directory that holds this very ``regft_core``."""
    return Path(__file__).resolve().parents[2]


def training_scope(own: Sequence[str]) -> Scope:
    """Scope of a training run; ``own``: the modules of its regularisers, kind of task, encoder family and optimiser."""
    return Scope((*TRAINING, *own), EXEMPT)


def stage_scope(name: StageName, own: Sequence[str] = ()) -> Scope:
    """Scope of a stage; ``own``: the entries (kinds of task, metrics, encoder family) that it uses."""
    scope = STAGES[name]
    return Scope((*scope.entries, *own), scope.exempt, scope.resources)


def graph_of(root: Path | None = None, packages: Sequence[str] = PACKAGES) -> CodeGraph:
    """Return the modules under ``root`` (this very installation by default) as they are now."""
    return CodeGraph(package_root() if root is None else root, packages, LOOKUPS)


def describe(graph: CodeGraph, reach: Reach, resources: bool = False) -> dict[str, Any]:
    """Return ``{"sha256", "modules", "packages"}`` of a reach; see :func:`code_of`. Callers must not change it."""
    files = graph.resources(reach.files) if resources else {}
    packages = versions(reach.external)
    # Every run asks for the same several times: hashed once for each reach, as long as files and versions are these.
    note = "described", tuple(sorted(files.items())), tuple(packages.items())
    if note not in reach.notes:
        modules = dict(sorted({**reach.modules, **files}.items()))
        sha256 = sha256_text(canonical_json({"modules": modules, "packages": packages}))
        reach.notes[note] = {"sha256": sha256, "modules": modules, "packages": packages}
    found: dict[str, Any] = reach.notes[note]
    return found


def code_of(
    entries: Sequence[str],
    root: Path | None = None,
    exempt: Collection[str] = EXEMPT,
    *,
    packages: Sequence[str] = PACKAGES,
    resources: bool = False,
) -> dict[str, Any]:
    """Return the fingerprint of all code that ``entries`` reach.

    Args:
        entries: modules; they count even below an exempt package.
        root: directory that holds the packages; that of this installation by default.
        exempt: modules that do not count, with all below them and all that only they import.
        packages: the project's own top-level packages.
        resources: also count the data files beside the modules.

    Returns:
        ``modules``: module (or ``module:name``, or data file) -> SHA-256 of what it means.
        ``packages``: distribution -> version (None: not installed) of the packages from
        elsewhere that these modules import. ``sha256``: of both.

    Raises:
        ConfigError: an entry does not exist, or a file is not valid Python.
    """

    def take() -> dict[str, Any]:
        graph = graph_of(root, packages)
        return describe(graph, graph.reach(entries, exempt), resources)

    return once(("code", tuple(entries), root, frozenset(exempt), tuple(packages), resources), take)


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


def file_code(path: Path, packages: Sequence[str] = PACKAGES) -> tuple[str, list[str]]:
    """Return the hash of what a Python file means that is no module of the project, and the project's modules in it.

    Raises ConfigError when it is not valid Python.
    """
    try:
        tree = ast.parse(path.read_bytes(), filename=str(path))
    except (SyntaxError, ValueError) as error:
        line = getattr(error, "lineno", None) or 0
        raise ConfigError([Problem("bad-python", str(path), line, "", f"is not valid Python: {error}")]) from error
    graph = graph_of()
    names = imported_names(tree, path.stem, False)
    own = sorted(name for name in names if name.split(".")[0] in packages and graph.file(name) is not None)
    return meaning(tree).sha256, own


def stage_code(name: StageName, own: Sequence[str] = (), root: Path | None = None) -> dict[str, Any]:
    """Return the fingerprint (see :func:`code_of`) of a stage that does not train."""
    scope = stage_scope(name, own)
    return code_of(scope.entries, root, scope.exempt, resources=scope.resources)
