"""Which definitions some entry modules reach, and what all of them mean together.

What a name stands for is found in syntax trees; nothing is imported, so this takes a fraction of a second
and no torch. Parsed files are kept for the life of the process.

The hash of a reach holds no name of a module: a definition counts by its text and by what each name in it
stands for. Moving it changes nothing, as long as the same definitions find each other.
"""

from __future__ import annotations

import ast
import os
from collections import Counter, defaultdict
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path
from typing import Any, NamedTuple

from regft_core.errors import ConfigError, Problem
from regft_core.identity.data_files import DataFiles, data_files
from regft_core.identity.distributions import is_standard, providers
from regft_core.identity.file_states import FileState, Missing, content_sha256, file_state, settled
from regft_core.identity.syntax import Meaning, Piece, meaning, sha256

#: Begins what a name from another package stands for, and stands between what it may stand for.
_ELSEWHERE, _OR = "from ", "\1"
#: A piece of a module: the module, the piece's index, and the part of it that was set apart (or nothing).
Node = tuple[str, int, str]


@dataclass(frozen=True)
class Reach:
    """What entry modules reach.

    Attributes:
        sha256: what the definitions that are reached mean.
        modules: module -> hash of what is reached of it, for messages; no part of any key.
        files: module that is loaded -> the file that was read for it.
        meanings: module -> what that file means.
        external: top-level packages from elsewhere that the definitions use.
        notes: what others have worked out from all this, for whoever is given the same reach again.
    """

    sha256: str
    modules: dict[str, str]
    files: dict[str, FileState]
    meanings: dict[str, Meaning]
    external: set[str]
    notes: dict[Any, Any] = field(default_factory=dict, compare=False)


class _Looked(NamedTuple):
    """Every file that was looked for to find a reach: those that were there, and those that were not."""

    found: tuple[FileState, ...]
    missing: Missing

    def same(self) -> bool:
        """Whether every look would find the same now."""
        return all(file_state(state.path) == state for state in self.found) and self.missing.still()


_parsed: dict[tuple[str, str], tuple[FileState, Meaning]] = {}
#: What was asked -> every file that was looked for then (also in vain), and what was reached.
_reaches: dict[tuple[Any, ...], tuple[_Looked, Reach]] = {}


@cache
def _candidates(root: str, module: str) -> tuple[str, str]:
    """Where a module can lie: a package's file goes first, as in an import. Every run asks hundreds of times."""
    base = os.path.join(root, *module.split("."))
    return os.path.join(base, "__init__.py"), base + ".py"


def under(module: str, names: Collection[str]) -> bool:
    """Whether ``module`` is one of ``names`` or below one of them."""
    return any(module == name or module.startswith(name + ".") for name in names)


@cache
def prefixes(module: str) -> list[str]:
    """``a``, ``a.b`` and ``a.b.c`` for ``a.b.c``: a package's ``__init__`` runs before its modules."""
    parts = module.split(".")
    return [".".join(parts[: i + 1]) for i in range(len(parts))]


class CodeGraph:
    """The modules under ``root`` at one moment.

    Args:
        packages: the project's top-level packages. Another one under ``root`` counts too if no
            installed distribution has its name.
    """

    def __init__(self, root: Path, packages: Sequence[str]) -> None:
        self.root = os.path.abspath(root)
        self.packages = frozenset(packages)
        self._states: dict[str, FileState | None] = {}
        self._own: dict[str, bool] = {}
        self._read: dict[str, Meaning] = {}

    def file(self, module: str) -> FileState | None:
        """Return the file of ``module`` (which may be the path of a file itself), or None if there is none."""
        if module not in self._states:
            package, plain = (module, module) if os.path.isabs(module) else _candidates(self.root, module)
            self._states[module] = file_state(package) or file_state(plain)
        return self._states[module]

    def is_own(self, top: str) -> bool:
        """Whether a top-level package is the project's."""
        if top not in self._own:
            own = top in self.packages
            self._own[top] = own or (not is_standard(top) and self.file(top) is not None and not providers(top))
        return self._own[top]

    def read(self, module: str, state: FileState) -> Meaning:
        """What the file of ``module`` means. Raises ConfigError for one that is not valid Python."""
        if module not in self._read:
            self._read[module] = self._parse(module, state)
        return self._read[module]

    def _parse(self, module: str, state: FileState) -> Meaning:
        known = _parsed.get((module, state.path))
        if known is not None and known[0] == state:
            return known[1]
        source = Path(state.path).read_bytes()
        try:
            tree = ast.parse(source, filename=state.path)
        except (SyntaxError, ValueError) as error:
            line = getattr(error, "lineno", None) or 0
            message = getattr(error, "msg", None) or str(error)
            where = os.path.relpath(state.path, self.root)
            raise ConfigError([Problem("bad-python", where, line, "", f"is not valid Python: {message}")]) from error
        found = meaning(tree, module, os.path.basename(state.path) == "__init__.py")
        if file_state(state.path) == state and settled(state):
            _parsed[(module, state.path)] = (state, found)
        return found

    def reach(self, entries: Sequence[str], exempt: Collection[str]) -> Reach:
        """Follow the names in ``entries`` to their definitions, and from there on.

        Modules in (or below) ``exempt`` are left out, unless they are entries, and so is what only
        they reach. Of an entry everything counts; of another module what is reached, and what acts when it
        is imported. Nothing is read again while every file that was looked for is as it was;
        callers must not change what they get.

        Raises:
            ConfigError: an entry does not exist, or a file is not valid Python.
        """
        asked = (self.root, self.packages, tuple(entries), frozenset(exempt))
        known = _reaches.get(asked)
        if known is not None and known[0].same():
            return known[1]
        for entry in entries:
            if self.file(entry) is None:
                expected = entry.replace(".", "/") + ".py"
                raise ConfigError(
                    [
                        Problem(
                            "module-missing",
                            expected,
                            0,
                            "",
                            f"module {entry} does not exist, but results depend on it",
                        )
                    ]
                )
        found = _Walk(self, frozenset(entries), exempt).take()
        if all(settled(state) for state in self._states.values()):
            _reaches[asked] = self._looked(), found
        return found

    def _looked(self) -> _Looked:
        missing = []
        for module, state in self._states.items():
            package, plain = (module, module) if os.path.isabs(module) else _candidates(self.root, module)
            if state is None or state.path != package:
                missing.append(package)
            if state is None:
                missing.append(plain)
        return _Looked(tuple(state for state in self._states.values() if state is not None), Missing(missing))

    @staticmethod
    def resources(reach: Reach) -> dict[str, tuple[str, str]]:
        """Return {path: (name, hash)} of the data files beside the modules of which something is reached."""
        found: DataFiles | None = reach.notes.get("data files")
        if found is None or not found.same():
            found = reach.notes["data files"] = data_files(reach.files[module].path for module in reach.modules)
        return {path: (name, content_sha256(path)) for path, name in found.names.items()}


class _Walk:
    """One walk from some entries along the names in their definitions."""

    def __init__(self, graph: CodeGraph, entries: frozenset[str], exempt: Collection[str]) -> None:
        self.graph, self.entries, self.exempt = graph, entries, exempt
        #: Entries that are files and no modules.
        self.paths = [entry for entry in entries if os.path.isabs(entry)]
        self._exempt: dict[str, bool] = {}
        self._looked_up: dict[str, tuple[str, list[Node]]] = {}
        self.files: dict[str, FileState] = {}
        self.meanings: dict[str, Meaning] = {}
        self.external: set[str] = set()
        #: Imports of packages for their effect.
        self.effects: set[str] = set()
        #: A node -> what the marks in it stand for in words, and as nodes.
        self.reached: dict[Node, tuple[str, list[Node]]] = {}
        self._queue: list[Node] = []
        self._asked: set[str] = set()
        #: Set apart, until somebody asks for it: its name -> where it is declared.
        self._said: dict[str, list[Node]] = defaultdict(list)

    def take(self) -> Reach:
        for entry in sorted(self.entries):
            self._load(entry)
            self._queue += self._all_of(entry)
            for origin in self.meanings[entry].unused:  # an entry hands on what it imports
                self._queue += self._resolve(origin)[1]
        while self._queue:
            self._visit(self._queue.pop())
        colours = {node: sha256(f"{self._piece(node).text}\0{words}") for node, (words, _) in self.reached.items()}
        edges = {node: targets for node, (_, targets) in self.reached.items()}
        colours = _told_apart(colours, edges)
        lines = {node: " ".join([colours[node], *(colours[target] for target in edges[node])]) for node in edges}
        by_module: dict[str, list[str]] = defaultdict(list)
        for node, line in lines.items():
            by_module[node[0]].append(line)
        modules = {module: sha256("\n".join(sorted(own))) for module, own in sorted(by_module.items())}
        whole = sha256("\n".join(sorted([*lines.values(), *self.effects])))
        return Reach(whole, modules, self.files, self.meanings, self.external)

    def _is_exempt(self, module: str) -> bool:
        if module not in self._exempt:
            self._exempt[module] = module not in self.entries and under(module, self.exempt)
        return self._exempt[module]

    def _load(self, module: str) -> None:
        """Take note that a module is imported, with all that this imports, and of what acts then."""
        if module in self.files:
            return
        for name in [module] if module in self.paths else prefixes(module):
            state = self.graph.file(name)
            if state is None or name in self.files or self._is_exempt(name):
                continue  # `from a import function`: a name that is no module
            found = self.meanings[name] = self.graph.read(name, state)
            self.files[name] = state
            self._queue += [(name, index, "") for index, piece in enumerate(found.pieces) if piece.acts]
            for origin in found.unused:
                top = origin.partition(".")[0]
                if not self.graph.is_own(top) and not is_standard(top):
                    self.effects.add(f"import {origin}")
                    self.external.add(top)
            for origin in found.loaded:
                if self.graph.is_own(origin.partition(".")[0]):
                    self._load(origin)

    def _all_of(self, module: str) -> list[Node]:
        return [(module, index, "") for index in range(len(self.meanings[module].pieces))]

    def _piece(self, node: Node) -> Piece:
        module, index, said = node
        piece = self.meanings[module].pieces[index]
        return piece.said[said] if said else piece

    def _visit(self, node: Node) -> None:
        if node in self.reached:
            return
        piece = self._piece(node)
        words, targets = list[str](), list[Node]()
        for name in piece.names:
            word, found = self._look_up(name)
            words.append(word)
            targets += found
        self.external.update(_packages(words))
        self.reached[node] = "\0".join(words), targets
        self._queue += targets
        for name in piece.types:
            self._queue += [one for one in self._look_up(name)[1] if self._piece(one).text.startswith("ClassDef(")]
        for said in piece.said:
            self._said[said].append((*node[:2], said))
        self._asked.update(piece.asks)
        for asked in self._asked & self._said.keys():
            self._queue += self._said.pop(asked)

    def _look_up(self, name: str) -> tuple[str, list[Node]]:
        if name not in self._looked_up:
            self._looked_up[name] = self._resolve(name)
        return self._looked_up[name]

    def _resolve(self, dotted: str, seen: frozenset[str] = frozenset()) -> tuple[str, list[Node]]:
        """What a dotted name stands for: in words that name no module of the project, and the definitions."""
        module, *rest = self._parts(dotted)
        if not self.graph.is_own(module):
            return f"{_ELSEWHERE}{dotted}", []
        while True:
            exempt = self._is_exempt(module)
            if not exempt:
                self._load(module)
            if not rest:
                return ("outside", []) if exempt or module not in self.meanings else ("module", self._all_of(module))
            bound = self._bound(module, rest[0], exempt)
            below = (".".join([module, *rest[:depth]]) for depth in range(1, len(rest) + 1))
            inner = None if bound else next((name for name in below if self.graph.file(name) is not None), None)
            if inner is None:
                break
            module, rest = inner, rest[inner.count(".") - module.count(".") :]
        words, nodes = list[str](), list[Node]()
        for one in bound:
            if isinstance(one, int):
                words.append(".".join(rest))
                nodes.append((module, one, ""))
            elif dotted not in seen:
                word, found = self._resolve(".".join([one, *rest[1:]]), seen | {dotted})
                words.append(word)
                nodes += found
        return _OR.join(words) if bound else f"outside {'.'.join(rest)}", nodes

    def _parts(self, dotted: str) -> list[str]:
        """The parts of a dotted name; a file that is no module of a package is one part."""
        file = next((path for path in self.paths if dotted.startswith(path)), "")
        return [file, *dotted[len(file) + 1 :].split(".")] if file else dotted.split(".")

    def _bound(self, module: str, name: str, exempt: bool) -> Sequence[int | str]:
        """What binds a name in a module; of an exempt one only what type checkers are told, for stand-ins."""
        state = self.graph.file(module)
        if state is None:
            return ()
        found = self.graph.read(module, state)
        typed = (found.typed[name],) if name in found.typed else ()
        if exempt:
            return typed
        stars = [f"{origin}.{name}" for origin in found.bound.get("*", ()) if isinstance(origin, str)]
        return found.bound.get(name) or typed or stars


def _packages(words: Sequence[str]) -> set[str]:
    """The top-level packages of what comes from elsewhere."""
    names = [name for word in words for name in word.split(_OR) if name.startswith(_ELSEWHERE)]
    return {name.removeprefix(_ELSEWHERE).partition(".")[0] for name in names}


def _told_apart(colours: dict[Node, str], edges: Mapping[Node, Sequence[Node]]) -> dict[Node, str]:
    """Refine the colours of nodes with one text by what they stand for and who uses them, as far as this differs."""
    users: dict[Node, list[Node]] = defaultdict(list)
    for node, targets in edges.items():
        for target in targets:
            users[target].append(node)
    while True:
        count = Counter(colours.values())
        finer = dict(colours)
        for node in (node for node, colour in colours.items() if count[colour] > 1):
            around = [colours[other] for other in edges[node]], sorted(colours[other] for other in users[node])
            finer[node] = sha256(repr((colours[node], around)))
        if len(set(finer.values())) == len(count):
            return colours
        colours = finer
