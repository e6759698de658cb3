"""Which definitions some entry modules reach, and what all of them mean together.

What a name stands for is found in syntax trees. The hash of a reach holds no name of a module: a definition counts by
its text and by what each name in it stands for. Moving it changes nothing, as long as the same definitions find
each other.
"""

from __future__ import annotations

import os
from collections import Counter, defaultdict
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cache
from typing import TYPE_CHECKING, Any

from regft_core.io.file_states import FileState
from regft_core.runs.identity.distributions import is_standard
from regft_core.runs.identity.syntax import Meaning, Piece, sha256

if TYPE_CHECKING:
    from regft_core.runs.identity.code_graph import CodeGraph

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
        notes: what others have worked out from all this, for later callers with the same reach.
    """

    sha256: str
    modules: dict[str, str]
    files: dict[str, FileState]
    meanings: dict[str, Meaning]
    external: set[str]
    notes: dict[Any, Any] = field(default_factory=dict, compare=False)


def under(module: str, names: Collection[str]) -> bool:
    """Whether ``module`` is one of ``names`` or below one of them."""
    return any(module == name or module.startswith(name + ".") for name in names)


@cache
def prefixes(module: str) -> list[str]:
    """``a``, ``a.b`` and ``a.b.c`` for ``a.b.c``: a package's ``__init__`` runs before its modules."""
    parts = module.split(".")
    return [".".join(parts[: i + 1]) for i in range(len(parts))]


class Walk:
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
        """Walk from the entries; the definitions that are reached, each with its hash."""
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
