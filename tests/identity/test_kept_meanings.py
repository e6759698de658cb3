"""What files mean is kept on disk: the same as parsed anew, of these very bytes, and lost without harm."""

from __future__ import annotations

import ast
from pathlib import Path

import pytest

from regft_core.runs.identity import kept_meanings
from regft_core.runs.identity.fingerprint import package_root
from regft_core.runs.identity.kept_meanings import keep, recall
from regft_core.runs.identity.syntax import Meaning, meaning

CODE = 'from os import path\n\nA = "\\ud800"\n\n\ndef f(x: int) -> int:\n    return path.join(A, x)\n'


@pytest.fixture(autouse=True)
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("REGFT_CACHE", str(tmp_path))
    return tmp_path / "meanings"


def parsed(module: str, source: bytes, is_package: bool = False) -> Meaning:
    return meaning(ast.parse(source), module, is_package)


def test_every_module_of_the_package_comes_back_as_it_was_parsed() -> None:
    for path in sorted((package_root() / "regft_core").rglob("*.py")):
        parts = path.relative_to(package_root()).with_suffix("").parts
        is_package, source = parts[-1] == "__init__", path.read_bytes()
        module = ".".join(parts[:-1] if is_package else parts)
        found = parsed(module, source, is_package)
        keep(module, source, is_package, found)
        assert recall(module, source, is_package) == found, module


def test_only_these_bytes_of_this_module_are_recalled(cache: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    source = CODE.encode()
    assert recall("regft_core.x", source, False) is None
    keep("regft_core.x", source, False, parsed("regft_core.x", source))
    assert recall("regft_core.x", source, False) == parsed("regft_core.x", source)
    assert recall("regft_core.x", source + b"B = 1\n", False) is None
    assert recall("regft_core.x", source, True) is None
    monkeypatch.setattr(kept_meanings, "_reader", lambda: "another version of what reads code")
    assert recall("regft_core.x", source, False) is None


@pytest.mark.parametrize("damage", ["", "{", "[]", '{"of": 1}'])
def test_a_damaged_file_counts_as_absent(cache: Path, damage: str) -> None:
    source = CODE.encode()
    keep("regft_core.x", source, False, parsed("regft_core.x", source))
    (cache / "regft_core.x.json").write_text(damage)
    assert recall("regft_core.x", source, False) is None


def test_where_nothing_can_be_written_nothing_is_kept(cache: Path) -> None:
    cache.parent.mkdir(exist_ok=True)
    cache.write_text("a file is in the way")
    keep("regft_core.x", CODE.encode(), False, parsed("regft_core.x", CODE.encode()))
    assert recall("regft_core.x", CODE.encode(), False) is None


def test_code_of_others_is_not_kept(cache: Path) -> None:
    for module in ("toy.methods", "/home/someone/methods/own"):
        keep(module, CODE.encode(), False, parsed(module, CODE.encode()))
    assert not cache.exists()
