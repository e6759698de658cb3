"""Add missing controls to ``params.yaml`` without touching anything else in it.

The names are inserted into the text, so comments, order, quotes and spacing stay as they are.
"""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path
from typing import Any

from ruamel.yaml import YAML, nodes

from regft_core.disk.files import write_bytes
from regft_core.errors import ConfigError, Problem
from regft_core.settings.document import load_yaml
from regft_core.settings.find_controls import Control


def with_controls(text: str, controls: Iterable[Control], file: str = "params.yaml") -> str:
    """``text`` of a valid params.yaml with each control at the end of its list of methods.

    Raises:
        ConfigError: the file is written in a way that cannot be changed safely.
    """
    names = [control.name for control in controls]
    before = load_yaml(Path(file), Path(), text).data
    for name in names:
        text = _insert(text, name, file)
    after = load_yaml(Path(file), Path(), text).data
    if after != {**before, "methods": [*before["methods"], *names]}:
        raise _by_hand(file, 0, names)
    return text


def write_controls(root: Path, controls: Iterable[Control], file: str = "params.yaml") -> str:
    """Insert ``controls`` into the project's params file, atomically; returns the new text."""
    path = root / file
    content = path.read_bytes()
    bom = b"\xef\xbb\xbf" if content.startswith(b"\xef\xbb\xbf") else b""
    text = with_controls(content.decode("utf-8-sig"), controls, file)
    mode = path.stat().st_mode
    target = path.resolve()  # a linked params.yaml stays a link
    write_bytes(target, bom + text.encode("utf-8"))
    target.chmod(mode)
    return text


def _by_hand(file: str, line: int, names: Iterable[str]) -> ConfigError:
    message = "is written in a way that cannot be changed without disturbing it"
    return ConfigError([Problem("cannot-edit", file, line, "methods", message, f"add by hand: {', '.join(names)}")])


def _insert(text: str, name: str, file: str) -> str:
    listed = _value(YAML(typ="safe").compose(text), "methods")
    if not isinstance(listed, nodes.SequenceNode):
        raise _by_hand(file, listed.start_mark.line + 1 if listed is not None else 0, [name])
    if listed.flow_style:
        at = listed.value[-1].end_mark.index if listed.value else listed.start_mark.index + 1
        return text[:at] + (", " if listed.value else "") + name + text[at:]
    return _insert_line(text, listed.value[-1].end_mark, " " * listed.start_mark.column + f"- {name}")


def _insert_line(text: str, mark: Any, line: str) -> str:
    """Put ``line`` below the line of ``mark``, with the line ending that is used there."""
    end = text.find("\n", mark.index)
    if end < 0:
        ending = "\r\n" if "\r\n" in text else "\n"
        return text + ending + line
    ending = "\r\n" if text[:end].endswith("\r") else "\n"
    return text[: end + 1] + line + ending + text[end + 1 :]


def _value(mapping: Any, key: str) -> Any:
    if isinstance(mapping, nodes.MappingNode):
        for name, value in mapping.value:
            if name.value == key:
                return value
    return None
