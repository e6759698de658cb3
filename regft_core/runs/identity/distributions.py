"""Versions of the installed packages whose code takes part in a result."""

from __future__ import annotations

import importlib.metadata
import os
import re
import sys
from collections.abc import Iterable, Mapping
from contextlib import suppress
from functools import cache, lru_cache

#: Distributions that cannot change a number, each with the reason why.
NO_NUMBERS: Mapping[str, str] = {
    "pydantic": "validates options; what passes is in the key, resolved",
    "pyyaml": "reads options; what it reads is in the key, resolved",
    "rich": "draws on the terminal",
    "tqdm": "draws on the terminal",
    "typing-extensions": "annotations",
    "huggingface-hub": "fetches files, which are hashed by content",
    "safetensors": "stores tensors bit by bit in a fixed format; what it reads is hashed by content",
}
#: What a distribution computes with although our code never imports it.
COMPANIONS: Mapping[str, tuple[str, ...]] = {"transformers": ("tokenizers",)}


def _normal(name: str) -> str:
    return re.sub(r"[-_.]+", "-", name).lower()


@lru_cache(maxsize=1)
def _every_provider() -> Mapping[str, list[str]]:
    """As ``importlib.metadata.packages_distributions``, several times as fast: it makes no object for each file."""
    found: dict[str, list[str]] = {}
    for distribution in importlib.metadata.distributions():
        for top in _tops(distribution):
            found.setdefault(top, []).append(distribution.metadata["Name"])
    return found


def _tops(distribution: importlib.metadata.Distribution) -> set[str]:
    if listed := (distribution.read_text("top_level.txt") or "").split():
        return set(listed)
    lines = (distribution.read_text("RECORD") or "").splitlines()
    files = [line.rpartition(",")[0].rpartition(",")[0].strip('"') for line in lines]
    return {file.partition("/")[0].removesuffix(".py") for file in files if file.endswith(".py")}


@cache
def providers(top: str) -> tuple[str, ...]:
    """Return the distributions that install the top-level package ``top``; empty if none does."""
    try:  # most have its name, and asking for all of them takes 0.2 s
        distribution = importlib.metadata.distribution(top)
        if any(os.path.exists(str(distribution.locate_file(name))) for name in (top, f"{top}.py")):
            return (_normal(top),)
    except (importlib.metadata.PackageNotFoundError, ValueError):
        pass
    return tuple(sorted({_normal(name) for name in _every_provider().get(top, ())}))


def is_standard(top: str) -> bool:
    """Whether a top-level package belongs to Python itself."""
    return top in sys.stdlib_module_names


#: What tells that a package was installed, changed or removed -> distribution -> version.
_versions: dict[tuple[tuple[str, int], ...], dict[str, str | None]] = {}


def installed_state() -> tuple[tuple[str, int], ...]:
    """Every folder that Python imports from, and when its entries changed: installing a package changes one."""
    found = []
    for folder in sys.path:
        with suppress(OSError):
            found.append((folder, os.stat(folder or ".").st_mtime_ns))
    return tuple(found)


def _known_versions(state: tuple[tuple[str, int], ...]) -> dict[str, str | None]:
    """Versions looked up since anything was last installed; looking one up takes milliseconds."""
    if state not in _versions:
        _versions.clear()
        _versions[state] = {}
    return _versions[state]


def _version(distribution: str, state: tuple[tuple[str, int], ...]) -> str | None:
    known = _known_versions(state)
    if distribution not in known:
        try:
            known[distribution] = importlib.metadata.version(distribution)
        except importlib.metadata.PackageNotFoundError:
            known[distribution] = None
    return known[distribution]


def installed(distributions: Iterable[str]) -> dict[str, str | None]:
    """Return {distribution: version}; None where it is not installed."""
    state = installed_state()
    return {name: _version(name, state) for name in distributions}


def versions(tops: Iterable[str]) -> dict[str, str | None]:
    """Return {distribution: version} of what installs the top-level packages ``tops``.

    Python's own packages and ``NO_NUMBERS`` are left out, ``COMPANIONS`` added. A package that
    is not installed stands under its own name with None: it may be optional, and installing it
    changes what runs.
    """
    names: set[str] = set()
    for top in tops:
        if not is_standard(top):
            names.update(providers(top) or (_normal(top),))
    names.update(companion for name in list(names) for companion in COMPANIONS.get(name, ()))
    return installed(sorted(names - set(NO_NUMBERS)))
