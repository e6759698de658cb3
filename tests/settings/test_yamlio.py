from __future__ import annotations

import warnings
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from ruamel.yaml import YAML
from ruamel.yaml.error import YAMLError

from regft_core.errors import ConfigError
from regft_core.settings.document import MAX_BYTES, MAX_DEPTH, Document, dotted, load_yaml, yaml_text
from tests.errors import problems_of, raises_code

FILE = Path("/project/params.yaml")


def load(text: str) -> Document:
    return load_yaml(FILE, FILE.parent, text)


def read_by_dvc(text: str) -> list[Any]:
    """The readings of DVC's parser with the Python and the C scanner, without those that stop with an error."""
    found = []
    for pure in (True, False):
        # DVC would stop there: no stage runs with values that it does not see.
        with warnings.catch_warnings(), suppress(YAMLError, ValueError, OverflowError, IndexError):
            warnings.simplefilter("ignore")
            found.append(YAML(typ="safe", pure=pure).load(text))
    return found


WORDS = ["a", "lr", "2e-5", "1_0", "no", "0o17", "~", "", "1.0", ".inf", "'2'", '"x: y"', "x y", "\u00e9", "-", "#"]
PIECES = ["a: ", "b: ", "c:", "- ", "\n", "\n  ", "\n    ", "{", "}", "[", "]", ", ", " # note", "\t", "&x ", "*x"]
PIECES += ["!!str ", "!t ", "|\n", ">-\n", "'", '"', "? ", "---\n", "...\n", "\r\n", "%YAML 1.1\n", "\\", ": "]
PIECES += ["=", "<<", "1e5"]


@given(st.lists(st.sampled_from(PIECES + WORDS), max_size=14).map("".join))
@settings(max_examples=500, deadline=None)
def test_what_we_accept_dvc_reads_alike(text: str) -> None:
    text = "a: " + text
    try:
        ours = load(text).data
    except ConfigError:
        return
    for theirs in read_by_dvc(text):
        assert repr(ours) == repr(theirs), text  # 1, 1.0 and true are unlike, and so are orders of keys


@given(st.lists(st.text("0179eE+-._oxbinfalsuyNO:=<~#, ", max_size=6)))
@settings(max_examples=500, deadline=None)
def test_texts_are_read_as_they_were_written(texts: list[str]) -> None:
    data = {"a": ["1e3", "0o17", *texts], "b": dict.fromkeys(texts, 1e-7)}
    assert load(yaml_text(data)).data == data


def test_lines_of_keys_and_items() -> None:
    text = "# note\ngrid:\n  tasks: [rte,\n    mrpc]\n  sizes:\n  - 10\n\n  - full\nends: {a: 1}\n"
    document = load(text)
    lines = " ".join(f"{dotted(path)}:{place.line}" for path, place in document.places.items())
    tasks = "grid.tasks:3 grid.tasks[0]:3 grid.tasks[1]:4"
    assert lines == f"grid:2 {tasks} grid.sizes:5 grid.sizes[0]:6 grid.sizes[1]:8 ends:9 ends.a:9"
    assert document.place(("grid", "sizes", 1, "x")) == ("params.yaml", 8, ("grid", "sizes", 1, "x"))
    assert document.place(("absent",)).line == 0
    assert dotted(("grid", "sizes", 1, "x")) == "grid.sizes[1].x"


def test_aliases_are_read_and_may_not_multiply() -> None:
    assert load("a: &x [1, 2]\nb: *x\n").data == {"a": [1, 2], "b": [1, 2]}
    bomb = "a0: &a0 [1, 1]\n" + "".join(f"a{i}: &a{i} [*a{i - 1}, *a{i - 1}]\n" for i in range(1, 19))
    assert problems_of(load, bomb)[0].code == "too-deep"


@pytest.mark.parametrize(
    ("text", "line", "code"),
    [
        ("a: 1\nb: 2\na: 3\n", 3, "duplicate-key"),
        ("a: {1: x, 1.0: y}\n", 1, "duplicate-key"),
        ("a: !!python/object/apply:os.system [ls]\n", 1, "yaml-tag"),
        ("a: !!set {b}\n", 1, "yaml-tag"),
        ("a: &x {k: 1}\nb:\n  <<: *x\n", 3, "ambiguous-scalar"),
        ("a: 2024-01-01\n", 1, "ambiguous-scalar"),
        ("a: =\n", 1, "ambiguous-scalar"),
        ("a: -_\n", 1, "ambiguous-scalar"),
        ("a: " + "9" * 5000 + "\n", 1, "ambiguous-scalar"),
        ("a: &x [*x]\n", 1, "too-deep"),
        ("a: " + "[" * (MAX_DEPTH + 1) + "]" * (MAX_DEPTH + 1), 1, "too-deep"),
        ("a: " + "[" * 50_000, 1, "too-deep"),
        ("a:\n\tb: 1\n", 2, "tab"),
        ("a: [1,\n  2\nb: 3\n", 3, "open-bracket"),
        ('a: 1\nb: "x\nc: 2\n', 4, "open-quotes"),
        ("x:\n  a: 1\n y: 2\n", 3, "yaml-syntax"),
        ("a: b: c\n", 1, "yaml-syntax"),
        ("a: 1\n---\nb: 2\n", 2, "yaml-syntax"),
        ("a: *x\n", 1, "yaml-syntax"),
        ("- 1\n- 2\n", 1, "not-a-mapping"),
        ("# only a comment\n", 0, "empty-file"),
        ("%YAML 1.1\n---\na: no\n", 1, "yaml-directive"),
        ("? [a]\n: 1\n", 1, "bad-key"),
        ("a:\n  ~: 1\n", 2, "bad-key"),
        ("a: é\nb: x\x07y\n", 2, "bad-character"),
        ("a: 1\nb: x\u2028y\n", 2, "bad-character"),
    ],
)
def test_refused_documents_name_the_line_and_the_remedy(text: str, line: int, code: str) -> None:
    problem = problems_of(load, text)[0]
    assert (problem.code, problem.file, problem.line) == (code, "params.yaml", line)
    assert problem.hint


def test_unreadable_files(tmp_path: Path) -> None:
    (tmp_path / "params.yaml").write_bytes(b"a: 1\nb: \xff\n")
    (tmp_path / "big.yaml").write_bytes(b"#" * (MAX_BYTES + 1))
    (tmp_path / "folder.yaml").mkdir()
    for name, code, shown in (
        ("params", "not-utf8", ("params.yaml:2", "0xff")),
        ("parms", "file-missing", ("parms.yaml", "'params.yaml'?")),
        ("big", "file-too-large", ()),
        ("folder", "cannot-read", ("folder.yaml",)),
    ):
        with raises_code(ConfigError, code, *shown):
            load_yaml(tmp_path / f"{name}.yaml", tmp_path)
    (tmp_path / "bom.yaml").write_bytes(b"\xef\xbb\xbfa: 1\n")
    assert load_yaml(tmp_path / "bom.yaml", tmp_path).data == {"a": 1}
