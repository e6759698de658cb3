"""Which code determines a result, as a hash that DVC and the run store can depend on.

DVC does not follow imports: a corrected loss would silently keep old results. So the modules
that an entry point imports, directly or not, are found in their syntax trees, and each is
hashed without comments and docstrings. A method's fingerprint has the shared training code
and the files of the regularisers that it names, not those of other methods. Never imports
what it reads, so it takes a fraction of a second and no torch.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from pathlib import Path
from typing import Any

from regft_core.errors import ConfigError, Problem
from regft_core.io import canonical_json, read_json, sha256_file, sha256_text, write_json
from regft_core.runs.syntax import code_sha256, imported_names, parse

PACKAGES = ("regft_core", "stages")

#: Modules (with everything below them) that cannot change what a run computes: they show
#: results, plan runs, or refuse configurations (what passes is in the run key, resolved).
IRRELEVANT = (
    "regft_core.tracking",
    "regft_core.reporting",
    "regft_core.progress",
    "regft_core.config.__main__",
    "regft_core.config.check_methods",
    "regft_core.config.check_ood",
    "regft_core.config.check_params",
    "regft_core.config.check_tasks",
    "regft_core.config.controls",
    "regft_core.config.describe",
    "regft_core.config.explain",
    "regft_core.config.grid",
    "regft_core.config.names",
    "regft_core.config.plan",
    "regft_core.runs.fingerprint",
    "regft_core.runs.syntax",
    "regft_core.runs.killpoints",
)

#: Modules that name all methods to look them up. They count, but what they import from
#: ``METHODS`` does not: a method's own modules are given as entries.
LOOKUPS = ("regft_core.methods.registry",)
METHODS = "regft_core.methods"

#: Packages whose files are found by looking at the folder: no import names them, and all count.
SCANNED = ("regft_core.metrics",)

#: Entry modules of the fingerprints that do not belong to one method.
ENTRIES: Mapping[str, tuple[str, ...]] = {
    "dataset": ("stages.dataset",),
    "subsample": ("stages.subsample",),
    "evaluate": ("stages.evaluate",),
    "report": ("stages.report",),
}
#: Entry modules of every method, before its own regularisers.
METHOD_ENTRIES = ("stages.finetune", "stages.search")

#: Files beside the modules that belong to the code (report templates, published numbers).
RESOURCES = frozenset({".html", ".j2", ".jinja", ".css", ".js", ".yaml", ".yml", ".json", ".csv", ".tsv", ".txt"})


def _under(module: str, names: Collection[str]) -> bool:
    return any(module == name or module.startswith(name + ".") for name in names)


class CodeGraph:
    """The modules of the project's packages under ``root``; parses each file once."""

    def __init__(self, root: Path, packages: Sequence[str] = PACKAGES) -> None:
        self.root = root
        self.packages = tuple(packages)
        self._known: dict[str, tuple[str, frozenset[str]] | None] = {}

    def _file(self, module: str) -> Path | None:
        if not _under(module, self.packages):
            return None
        path = self.root.joinpath(*module.split("."))
        for candidate in (path / "__init__.py", path.with_name(path.name + ".py")):
            if candidate.is_file():
                return candidate
        return None

    def _read(self, module: str) -> tuple[str, frozenset[str]] | None:
        """Return a module's hash and the dotted names it imports, or None if there is no such file."""
        if module not in self._known:
            path = self._file(module)
            if path is None:
                self._known[module] = None
            else:
                try:
                    tree = parse(path)
                except (SyntaxError, ValueError) as error:
                    line = getattr(error, "lineno", None) or 0
                    message = getattr(error, "msg", None) or str(error)
                    where = str(path.relative_to(self.root))
                    raise ConfigError([Problem(where, line, "", f"is not valid Python: {message}")]) from error
                names = imported_names(tree, module, path.name == "__init__.py")
                self._known[module] = (code_sha256(tree), frozenset(n for n in names if _under(n, self.packages)))
        return self._known[module]

    def exists(self, module: str) -> bool:
        """Say whether there is a file for ``module``."""
        return self._file(module) is not None

    def reach(self, entries: Sequence[str], irrelevant: Collection[str] = IRRELEVANT) -> dict[str, str]:
        """Return {module: hash} of ``entries`` and all that they import; see ``fingerprint``."""
        found: dict[str, str] = {}
        for entry in entries:
            if self._read(entry) is None:
                expected = entry.replace(".", "/") + ".py"
                raise ConfigError(
                    [Problem(expected, 0, "", f"module {entry} does not exist, but results depend on it")]
                )
        # A package's __init__ runs before any of its modules.
        queue = [prefix for entry in entries for prefix in _prefixes(entry)]
        while queue:
            module = queue.pop()
            if module in found or (_under(module, irrelevant) and module not in entries):
                continue
            read = self._read(module)
            if read is None:
                continue  # a name that is not a module: `from a import function`
            found[module] = read[0]
            if module in SCANNED:
                folder = self.root.joinpath(*module.split("."))
                queue.extend(f"{module}.{path.stem}" for path in folder.glob("*.py") if path.name != "__init__.py")
            for name in read[1]:
                if not (module in LOOKUPS and _under(name, (METHODS,))):
                    queue.extend(_prefixes(name))
        return found

    def resources(self, modules: Collection[str]) -> dict[str, str]:
        """Return {path: hash} of the data files of the packages that ``modules`` are in."""
        directories = {path.parent for module in modules if (path := self._file(module)) is not None}
        found: dict[str, str] = {}
        for directory in directories:
            for path in directory.rglob("*"):
                # A sub-package's files belong to it, not to its parent.
                inner = [parent for parent in path.parents if directory in parent.parents]
                if path.suffix in RESOURCES and path.is_file() and not any(_has_code(parent) for parent in inner):
                    found[path.relative_to(self.root).as_posix()] = sha256_file(path)
        return found


def _has_code(directory: Path) -> bool:
    return any(directory.glob("*.py"))


def _prefixes(module: str) -> list[str]:
    parts = module.split(".")
    return [".".join(parts[: i + 1]) for i in range(len(parts))]


def fingerprint(
    entry_modules: Sequence[str],
    package_root: Path | str,
    packages: Sequence[str] = PACKAGES,
    irrelevant: Collection[str] = IRRELEVANT,
    graph: CodeGraph | None = None,
) -> dict[str, Any]:
    """Return ``{"sha256": ..., "modules": {module or data file: sha256}}`` of some entry points.

    The modules are those that the entries import, statically, within ``packages`` under
    ``package_root``: also inside functions, and every package's ``__init__``; less the
    ``irrelevant`` ones, unless they are entries themselves. Raises ``ConfigError`` when an
    entry does not exist or a file is not valid Python.
    """
    graph = graph or CodeGraph(Path(package_root), packages)
    modules = graph.reach(entry_modules, irrelevant)
    parts = dict(sorted({**modules, **graph.resources(modules)}.items()))
    return {"sha256": sha256_text(canonical_json(parts)), "modules": parts}


def package_root() -> Path:
    """Return the directory that holds this very ``regft_core``."""
    return Path(__file__).resolve().parents[2]


def write_fingerprints(
    root: Path | str,
    methods: Mapping[str, Sequence[str]],
    *,
    code_root: Path | str | None = None,
    allow_missing: bool = False,
) -> dict[str, str]:
    """Write ``<root>/work/code/<name>.json`` for every stage and method; return {name: sha256}.

    ``methods`` maps a method's name to the modules of its regularisers. Files whose content
    stays the same are not touched. ``allow_missing`` leaves out shared entry modules that do
    not exist (for tests). Raises ``ConfigError``, ``StoreError``.
    """
    graph = CodeGraph(package_root() if code_root is None else Path(code_root))
    wanted = {name: (entries, _irrelevant_to(name)) for name, entries in ENTRIES.items()}
    wanted |= {f"method-{name}": ((*METHOD_ENTRIES, *own), IRRELEVANT) for name, own in methods.items()}
    written = {}
    for name, (entries, irrelevant) in wanted.items():
        if allow_missing:
            own = methods.get(name.removeprefix("method-"), ())
            entries = tuple(entry for entry in entries if entry in own or graph.exists(entry))
        value = {"name": name, **fingerprint(entries, graph.root, irrelevant=irrelevant, graph=graph)}
        path = Path(root) / "work" / "code" / f"{name}.json"
        if not path.is_file() or read_json(path) != value:
            write_json(path, value)
        written[name] = str(value["sha256"])
    return written


def _irrelevant_to(name: str) -> tuple[str, ...]:
    # What shows results cannot change a run, but it is all that the report is.
    return tuple(module for module in IRRELEVANT if name != "report" or module != "regft_core.reporting")
