"""The code that determines a result: what is hashed into its key, and what this process has loaded.

DVC does not follow imports: a corrected loss would silently keep old results. So every file that the entries of a
result can import is hashed, without comments, docstrings and annotations of functions, together with the data files
beside it and the versions of the packages that it imports. Entries are what computes and the plug-ins in use; what a
plug-in that is not used does is in no other key.

``made_once.py`` compares it with what this process has loaded.
"""

from __future__ import annotations

import ast
import hashlib
import importlib
import importlib.metadata
import json
import os
import re
import sys
from collections.abc import Iterable, Iterator
from contextlib import suppress
from functools import cache, lru_cache
from pathlib import Path
from typing import Any, NamedTuple

import regft_core
from regft_core.disk.canonical import sha256_file, sha256_json, sha256_text
from regft_core.disk.files import write_json
from regft_core.disk.paths import FileState, cache_folder, content_sha256, file_state, folder_state, settled
from regft_core.errors import ConfigError, Problem, StoreError
from regft_core.runs.hashed_code import Scope

#: Stand-ins for packages that are imported when they are used.
_LAZY = {"regft_core.lazy": "", "regft_core.lazy.np": "numpy", "regft_core.lazy.torch": "torch"}
#: Packages that cannot change a number.
NO_NUMBERS = ("pydantic", "pyyaml", "rich", "tqdm", "typing-extensions", "huggingface-hub", "safetensors")
#: What lies beside modules and is not read by them.
_NO_DATA = (".py", ".pyc", ".pyi", "py.typed", ".md", "~")
#: What a package computes with although our code never imports it.
COMPANIONS = {"transformers": ("tokenizers",)}


def package_root() -> Path:
    """Return the directory that holds this very ``regft_core``."""
    return Path(regft_core.__file__).resolve().parents[1]


# ------------------------------------------------------------------------------------- one file


def _text(node: Any, parts: list[str]) -> None:
    """Write out a syntax tree without what does not act, alike in all versions of Python."""
    if isinstance(node, list):
        for item in node:
            _text(item, parts)
    elif not isinstance(node, ast.AST):
        parts.append(f"{type(node).__name__} {node!r}")
    elif not isinstance(node, ast.expr_context):
        parts.append(f"({type(node).__name__}")
        for name in node._fields:
            value = getattr(node, name, None)
            if value is None or value == [] or name in ("kind", "type_comment"):
                continue
            if name == "returns" or (name == "annotation" and isinstance(node, ast.arg)):
                continue
            if name == "body" and isinstance(value, list):
                value = [statement for statement in value if not _does_nothing(statement)]
            parts.append(name)
            _text(value, parts)
        parts.append(")")


def _does_nothing(statement: ast.stmt) -> bool:
    """Whether a statement is a docstring, ``pass``, or for type checkers."""
    if isinstance(statement, ast.Expr):
        return isinstance(statement.value, ast.Constant)
    typing = isinstance(statement, ast.If) and getattr(statement.test, "id", "") == "TYPE_CHECKING"
    return typing or isinstance(statement, ast.Pass)


def _imported(statements: list[ast.stmt], package: list[str]) -> Iterator[str]:
    """Dotted names that may be modules, of every import; ``package``: where relative imports start."""
    for statement in statements:
        if isinstance(statement, ast.Import):
            yield from (alias.name for alias in statement.names)
        elif isinstance(statement, ast.ImportFrom):
            above = package[: len(package) - statement.level + 1] if statement.level else []
            base = ".".join([*above, *([statement.module] if statement.module else [])])
            yield from (f"{base}.{alias.name}" for alias in statement.names)
        elif not _does_nothing(statement):
            for name in ("body", "orelse", "finalbody", "handlers", "cases"):
                yield from _imported(getattr(statement, name, None) or [], package)


class _Source(NamedTuple):
    """Hash of what a file does, and the dotted names that it imports."""

    sha256: str
    imports: tuple[str, ...]


def _source(path: str, module: str) -> _Source:
    content = Path(path).read_bytes()
    named = hashlib.sha256(f"{module} {os.path.basename(path)} ".encode() + content).hexdigest()
    if named not in _parsed():
        _parsed()[named] = _parse(path, content, module)
    return _parsed()[named]


@cache
def _parsed() -> dict[str, _Source]:
    """Hash of a file's bytes -> what was parsed from them, by this process or before: parsing all takes a second."""
    with suppress(OSError, ValueError, TypeError):
        return {name: _Source(sha256, tuple(names)) for name, sha256, names in json.loads(_cache_file().read_bytes())}
    return {}


@cache
def _cache_file() -> Path:
    return cache_folder() / f"code-{sha256_file(__file__)[:16]}.json"


def _write_cache() -> None:
    """Write what was parsed, of a few versions of all files; without a cache, they are parsed each time."""
    with suppress(OSError, StoreError):
        write_json(_cache_file(), [[name, *source] for name, source in list(_parsed().items())[-2000:]])


def _parse(path: str, content: bytes, module: str) -> _Source:
    try:
        tree = ast.parse(content, filename=path)
    except (SyntaxError, ValueError) as error:
        line, message = getattr(error, "lineno", None) or 0, getattr(error, "msg", None) or str(error)
        where = os.path.relpath(path, package_root())
        problem = Problem("bad-python", where, line, "", f"is not valid Python: {message}", "correct that line")
        raise ConfigError([problem]) from error
    parts: list[str] = []
    _text([statement for statement in tree.body if not _does_nothing(statement)], parts)
    package = module.split(".") if path.endswith("__init__.py") else module.split(".")[:-1]
    return _Source(sha256_text("\n".join(parts)), tuple(_imported(tree.body, package)))


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


# -------------------------------------------------------------------- data files and packages


def _data_files(paths: Iterable[str]) -> tuple[dict[str, str], list[str]]:
    """Path -> name of the data files beside modules, given by their files; and the folders that were looked into.

    A file whose name begins with that of a module of its folder (``pats.json`` and ``pats_words/a.txt`` with that of
    ``pats.py``) belongs to that module, others to every module of the folder.
    """
    stems: dict[str, set[str]] = {}
    for path in paths:
        folder, stem = os.path.split(os.path.splitext(path)[0])
        stems.setdefault(folder, set()).add(stem)
    data_of, looked = dict[str, str](), list[str]()
    for folder, used in stems.items():
        modules, data = set[str](), list[str]()
        for parent, inner, files in os.walk(folder):
            looked.append(parent)
            inner[:] = [name for name in inner if not name.startswith((".", "__"))]
            start = "" if parent == folder else f"{os.path.relpath(parent, folder)}/"
            names = {file.removesuffix(".py") for file in files if file.endswith(".py")}
            if start and names:  # a package, which has its own
                modules.add(start[:-1])
                inner.clear()
            else:
                modules |= names
                data += [start + file for file in files if not file.endswith(_NO_DATA) and not file.startswith(".")]
        for name in data:
            owners = {module for module in modules if name.startswith(module) and not name[len(module)].isalnum()}
            if not owners or owners & used:
                data_of[os.path.join(folder, name)] = name
    return data_of, looked


def _normal(name: str) -> str:
    return re.sub(r"[-_.]+", "-", name).lower()


@cache
def _distributions(top: str) -> tuple[str, ...]:
    """The distributions that install the top-level package ``top``; empty if none does."""
    with suppress(importlib.metadata.PackageNotFoundError, ValueError):
        # Most have its name, and asking for all of them takes 0.2 s.
        distribution = importlib.metadata.distribution({"sklearn": "scikit-learn", "yaml": "pyyaml"}.get(top, top))
        if any(os.path.exists(str(distribution.locate_file(name))) for name in (top, f"{top}.py")):
            return (_normal(distribution.metadata["Name"]),)
    return tuple(sorted(map(_normal, importlib.metadata.packages_distributions().get(top, ()))))


@cache
def _external(top: str) -> tuple[str, ...]:
    """The distributions of a top-level package that is not ours, whose versions count."""
    if not top or top in sys.stdlib_module_names:
        return ()
    names = _distributions(top) or (_normal(top),)
    return tuple(part for name in names if name not in NO_NUMBERS for part in (name, *COMPANIONS.get(name, ())))


def installed(distributions: Iterable[str]) -> dict[str, str | None]:
    """Return {distribution: version}; None where it is not installed."""
    # Installing a package changes a folder that Python imports from.
    folders = tuple(folder_state(folder or ".") for folder in sys.path)
    return {name: _version(name, folders) for name in distributions}


@lru_cache(maxsize=256)
def _version(distribution: str, _folders: tuple[FileState | None, ...]) -> str | None:
    with suppress(importlib.metadata.PackageNotFoundError):
        return importlib.metadata.version(distribution)
    return None


# ------------------------------------------------------------------------------ of all entries


class Code(NamedTuple):
    """Code of a scope, at one moment.

    Attributes:
        sha256: of everything.
        files: module or data file -> hash, to name what has changed.
        packages: distribution -> version; None: not installed.
        states: module or data file -> the file as it was.
    """

    sha256: str
    files: dict[str, str]
    packages: dict[str, str | None]
    states: dict[str, FileState]


#: Scope -> code, and the folders with data files, as they were.
_codes: dict[Scope, tuple[Code, list[FileState | None]]] = {}


def code_of(scope: Scope) -> Code:
    """Return the code of all files that the entries of a scope can import, as it is now.

    Raises ConfigError for an entry that does not exist, or a file that is not valid Python.
    """
    if scope in _codes:
        code, folders = _codes[scope]
        looked_at = [*code.states.values(), *folders]
        same = all(old is None or (file_state(old.path) or folder_state(old.path)) == old for old in looked_at)
        if same and installed(code.packages) == code.packages:
            return code
    parsed = len(_parsed())
    states, hashes, packages = dict[str, FileState](), dict[str, str](), set[str]()
    waiting = list(scope.entries)
    while waiting:
        module = waiting.pop()
        if module in states or not scope.counts(module):
            continue
        if module in _LAZY:
            packages.update(_external(_LAZY[module]))
            continue
        path = _file(module)
        state = None if path is None else file_state(path)
        if state is None:
            if module in scope.entries:
                where = module if os.path.isabs(module) else f"{module.replace('.', '/')}.py"
                what = f"module {module} does not exist, but results need it"
                raise ConfigError([Problem("module-missing", where, 0, "", what, "restore the file")])
            if _home(module.partition(".")[0]) is None:
                packages.update(_external(module.partition(".")[0]))
            continue
        states[module] = state
        hashes[module], imports = _source(state.path, module)
        for name in imports:  # a package's own file runs before its modules
            waiting += [name[:end] for end, letter in enumerate(name) if letter == "."] + [name]
    if len(_parsed()) > parsed:
        _write_cache()
    data, looked = _data_files(state.path for state in states.values())
    content = sorted([os.path.basename(module), sha256] for module, sha256 in hashes.items())
    for path, name in data.items():
        if (state := file_state(path)) is not None:
            named = os.path.relpath(path, package_root())
            states[named], hashes[named] = state, content_sha256(path)
            content.append([name, hashes[named]])
    versions = installed(sorted(packages))
    sha256 = sha256_json({"code": sorted(content), "packages": versions})
    code, folders = Code(sha256, dict(sorted(hashes.items())), versions, states), list(map(folder_state, looked))
    if all(map(settled, [*states.values(), *folders])):
        _codes[scope] = code, folders
    return code
