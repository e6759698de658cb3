"""The code in the key of a result: what is hashed, and that this process has loaded what is hashed. No torch here.

DVC does not follow imports: a corrected loss would silently keep old results. So every file that the entries of a
result (what computes, the plug-ins in use) can import is hashed, without comments, docstrings and annotations of
functions, together with the data files beside it and the versions of the packages that it imports.
"""

from __future__ import annotations

import ast
import importlib
import importlib.metadata
import os
import re
import sys
import time
from collections.abc import Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any, NamedTuple

import regft_core
from regft_core.catalogue import LOADED
from regft_core.disk.canonical import sha256_json, sha256_text
from regft_core.disk.paths import FileState, content_sha256, file_state, settled
from regft_core.errors import ConfigError, InputChanged, Problem

#: Modules (with all below them) that change no number, unless they are entries.
NEVER: Mapping[str, str] = {
    "regft_core.errors": "texts of refusals, and exit codes",
    "regft_core.names": "texts",
    "regft_core.catalogue": "finds files by their names; the file in use is an entry",
    "regft_core.disk": "writes files whole or not at all; what is read is hashed by content",
    "regft_core.output": "draws on the terminal",
    "regft_core.schema": "refuses configurations; what passes is in the key, resolved",
    "regft_core.settings": "refuses configurations; what passes is in the key, resolved",
    "regft_core.hooks.description": "documentation of methods",
    "regft_core.models.source": "finds encoders, whose bytes are in the key",
    "regft_core.models.devices": "device, threads and the library of products are recorded beside a result",
    "regft_core.runs": "finds inputs and makes the key, which has them by content; what computes is an entry",
    "regft_core.grid": "schedules runs",
}


@dataclass(frozen=True)
class Scope:
    """``entries`` (modules, or paths of files that are none) with all that they import, but for ``without``."""

    entries: tuple[str, ...]
    without: tuple[str, ...] = ()

    def counts(self, module: str) -> bool:
        """Whether a module is part of it when something imports it; the version of regft is not."""
        if module == "regft_core":
            return False
        dotted = f"{module}."
        return module in self.entries or not any(dotted.startswith(f"{name}.") for name in (*NEVER, *self.without))


def _write(node: Any, parts: list[str]) -> None:
    """Write out a syntax tree without what does not act, alike in all versions of Python."""
    if isinstance(node, list):
        for item in _acting(node):
            _write(item, parts)
    elif not isinstance(node, ast.AST):
        parts.append(f"{type(node).__name__} {node!r}")
    elif not isinstance(node, ast.expr_context):
        parts.append(f"({type(node).__name__}")
        skipped = ("kind", "type_comment", "returns", "annotation" if isinstance(node, ast.arg) else "")
        for name in node._fields:
            value = getattr(node, name, None)
            if value is not None and value != [] and name not in skipped:
                parts.append(name)
                _write(value, parts)
        parts.append(")")


def _acting(items: list[Any]) -> Iterator[Any]:
    """Yield what is no docstring, no ``pass`` and not for type checkers: of ``if TYPE_CHECKING`` what ``else`` runs."""
    for item in items:
        if isinstance(item, ast.If) and getattr(item.test, "id", "") == "TYPE_CHECKING":
            yield from _acting(item.orelse)
        elif not (isinstance(item, ast.Pass) or (isinstance(item, ast.Expr) and isinstance(item.value, ast.Constant))):
            yield item


def _imported(statements: list[ast.stmt], package: list[str]) -> Iterator[str]:
    """Dotted names that may be modules, of every import; ``package``: where relative imports start."""
    for statement in _acting(statements):
        if isinstance(statement, ast.Import):
            yield from (alias.name for alias in statement.names)
        elif isinstance(statement, ast.ImportFrom):
            above = package[: len(package) - statement.level + 1] if statement.level else []
            base = ".".join([*above, *([statement.module] if statement.module else [])])
            yield from (f"{base}.{alias.name}" for alias in statement.names)
        else:
            for name in ("body", "orelse", "finalbody", "handlers", "cases"):
                yield from _imported(getattr(statement, name, None) or [], package)


@cache
def _source(path: str, content: bytes, module: str) -> tuple[str, tuple[str, ...]]:
    """Return the hash of what a file does, and the dotted names that it imports."""
    try:
        tree = ast.parse(content, filename=path)
    except (SyntaxError, ValueError) as error:
        line, message = getattr(error, "lineno", None) or 0, getattr(error, "msg", None) or str(error)
        where = os.path.relpath(path, package_root())
        problem = Problem("bad-python", where, line, "", f"is not valid Python: {message}", "correct that line")
        raise ConfigError([problem]) from error
    package = module.split(".") if path.endswith("__init__.py") else module.split(".")[:-1]
    parts = list[str]()
    _write(tree.body, parts)
    return sha256_text("\n".join(parts)), tuple(_imported(tree.body, package))


#: What lies beside modules and is not read by them.
_NO_DATA = (".py", ".pyc", ".pyi", "py.typed", ".md", "~")


def _data_files(folder: Path, used: set[str]) -> Iterator[tuple[str, list[str]]]:
    """Yield the folders that may hold data files of the modules ``used`` of a folder, each with the paths of those.

    A file whose name begins with that of a module (``pats.json``, ``pats_words/a.txt``) belongs to it, others to every
    module of the folder, in a project's folder to none. A folder with modules has its own.
    """
    modules, is_project = {path.stem for path in folder.glob("*.py")}, (folder / "params.yaml").is_file()

    def counts(name: str, inside: bool) -> bool:
        owners = {one for one in modules if name.startswith(one) and not name[len(one) :][:1].isalnum()}
        return not name.startswith((".", "__")) and (inside or bool(owners & used) or not (owners or is_project))

    for parent, inner, files in os.walk(folder, followlinks=True):
        inside = parent != str(folder)
        package = inside and any(name.endswith(".py") for name in files)
        inner[:] = [name for name in inner if not package and counts(name, inside)]
        data = [name for name in files if not package and counts(name, inside) and not name.endswith(_NO_DATA)]
        yield parent, [os.path.join(parent, name) for name in data]


#: Stand-ins for packages that are imported when they are used.
_LAZY = {"regft_core.lazy": "", "regft_core.lazy.np": "numpy", "regft_core.lazy.torch": "torch"}
_LAZY |= {f"regft_core.lazy.{part}": "scipy" for part in ("optimize", "sparse", "special", "stats")}
#: Packages that cannot change a number.
NO_NUMBERS = ("pydantic", "pyyaml", "rich", "tqdm", "typing-extensions", "huggingface-hub", "safetensors", "cachetools")
#: What a package computes with although our code never imports it.
COMPANIONS = {"transformers": ("tokenizers",)}


def package_root() -> Path:
    """Return the directory that holds this very ``regft_core``."""
    return Path(regft_core.__file__).resolve().parents[1]


@cache
def _home(top: str) -> str | None:
    """The folder that holds a top-level package of ours or of the project's; None for others'."""
    if top in ("regft_core", "stages"):
        return str(package_root())
    if top in sys.stdlib_module_names or _distributions(top):
        return None
    return next((folder for folder in sys.path if _path(folder, top) or os.path.isdir(os.path.join(folder, top))), None)


def _path(folder: str, module: str) -> str | None:
    base = os.path.join(folder, *module.split("."))
    return next((path for path in (os.path.join(base, "__init__.py"), f"{base}.py") if os.path.isfile(path)), None)


@cache
def _file(module: str) -> str | None:
    """The file of a module that counts; None for packages from elsewhere and for names that are no modules."""
    home = module if os.path.isabs(module) else _home(module.partition(".")[0])
    return home if home is None or os.path.isabs(module) else _path(home, module)


@cache
def _distributions(top: str) -> tuple[str, ...]:
    """The distributions that install the top-level package ``top``; empty if none does."""
    with suppress(importlib.metadata.PackageNotFoundError, ValueError):
        # Most have its name, and asking for all of them takes 0.2 s.
        distribution = importlib.metadata.distribution({"sklearn": "scikit-learn", "yaml": "pyyaml"}.get(top, top))
        if any(os.path.exists(str(distribution.locate_file(name))) for name in (top, f"{top}.py")):
            return (distribution.metadata["Name"],)
    return tuple(importlib.metadata.packages_distributions().get(top, ()))


@cache
def _external(top: str) -> dict[str, str | None]:
    """Return the versions that count of a top-level package that is not ours."""
    if not top or top in sys.stdlib_module_names:
        return {}
    names = {re.sub(r"[-_.]+", "-", name).lower() for name in _distributions(top) or (top,)}
    return {part: version(part) for name in names - {*NO_NUMBERS} for part in (name, *COMPANIONS.get(name, ()))}


def _installed(distribution: str) -> str | None:
    with suppress(importlib.metadata.PackageNotFoundError):
        found = importlib.metadata.distribution(distribution)
        # ``version`` parses the whole file, five milliseconds a package, and this is asked before and after every run.
        stated = re.search("^Version: *(.+?) *$", found.read_text("METADATA") or "", re.MULTILINE)
        return stated[1] if stated else found.version
    return None


#: The version of a package as this process met it first, see ``load``; None without.
version = cache(_installed)


class Code(NamedTuple):
    """Code of a scope at one moment: ``files`` and ``states`` by module or data file, versions of ``packages``."""

    sha256: str
    files: dict[str, str]
    packages: dict[str, str | None]
    states: dict[str, FileState]


#: Scope -> code, and the files and folders that were looked at, as they were.
_codes: dict[Scope, tuple[Code, list[FileState]]] = {}


def code_of(scope: Scope) -> Code:
    """Return the code of a scope as it is now; raises ConfigError for a missing entry and for what is no Python."""
    if scope in _codes:
        code, looked_at = _codes[scope]
        if all(file_state(old.path) == old for old in looked_at):
            return code
    states, hashes, packages = dict[str, FileState](), dict[str, str](), dict[str, str | None]()
    content, used, waiting = list[list[str]](), dict[Path, set[str]](), list(scope.entries)
    while waiting:
        module = waiting.pop()
        top = module.partition(".")[0]
        if module in states or not scope.counts(module):
            continue
        path = _file(module)
        state = None if path is None else file_state(path)
        if module in _LAZY or (state is None and _home(top) is None):
            packages |= _external(_LAZY.get(module, top))
        elif state is not None:
            states[module] = state
            hashes[module], imports = _source(state.path, Path(state.path).read_bytes(), module)
            content.append([os.path.basename(module), hashes[module]])
            used.setdefault(Path(state.path).parent, set()).add(Path(state.path).stem)
            for name in imports:  # a package's own file runs before its modules
                waiting += [name[:end] for end, letter in enumerate(name) if letter == "."] + [name]
        elif module in scope.entries:
            where = module if os.path.isabs(module) else f"{module.replace('.', '/')}.py"
            what = f"module {module} does not exist, but results need it"
            raise ConfigError([Problem("module-missing", where, 0, "", what, "restore the file")])
    folders = list[str]()
    for home, stems in used.items():
        for folder, files in _data_files(home, stems):
            folders.append(folder)
            for file in files:
                if (state := file_state(file)) is not None:
                    named = os.path.relpath(file, package_root())
                    states[named], hashes[named] = state, content_sha256(file)
                    content.append([Path(file).relative_to(home).as_posix(), hashes[named]])
    packages = dict(sorted(packages.items()))
    sha256 = sha256_json({"code": sorted(content), "packages": packages})
    code = Code(sha256, dict(sorted(hashes.items())), packages, states)
    looked_at = [*states.values(), *filter(None, map(file_state, folders))]
    if all(map(settled, looked_at)):
        _codes[scope] = code, looked_at
    return code


#: Hash of a file as this process met it first: what it computes with.
_met: dict[str, str] = {}
#: The clock that stamps files may be this much behind the one that programs read.
_CLOCK_NS = 10_000_000


def load(scope: Scope) -> None:
    """Import all modules of a scope, which a result is computed with; called again before the result is written.

    Raises ConfigError as ``code_of``; InputChanged where this process may have loaded, or read, another content of a
    file, or another version of a package, than there is now.
    """
    code = code_of(scope)
    changed = [name for name, sha256 in code.files.items() if _came_later(name, sha256, code.states[name])]
    for module in code.files if not changed else ():
        if "/" not in module:
            with suppress(ImportError):  # it needs an optional package; whoever calls it meets the same error
                importlib.import_module(module)
    changed += [f"the package {name}" for name, number in code.packages.items() if _installed(name) != number]
    if changed:
        raise InputChanged("code-edited", f"{', '.join(changed)} changed after this process had begun")


def _came_later(name: str, sha256: str, state: FileState) -> bool:
    """Whether this process may have loaded, or read, another content of a module or data file."""
    if name in LOADED:  # of a plug-in its loader says what it loaded
        return LOADED[name] != (state.mtime_ns, state.size)
    if name not in _met and (name in sys.modules or "/" in name):
        written = max(state.mtime_ns, state.ctime_ns)  # in the future: by another clock
        if regft_core.LOADED_AT_NS - _CLOCK_NS <= written <= time.time_ns():
            return True
    return _met.setdefault(name, sha256) != sha256
