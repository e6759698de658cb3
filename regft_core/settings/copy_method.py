"""Copies the YAML of a shipped method into a project, where it is edited."""

from __future__ import annotations

from pathlib import Path

from regft_core import shipped
from regft_core.disk.files import write_text
from regft_core.errors import ConfigError, Problem
from regft_core.names import suggestion
from regft_core.schema.method import is_name
from regft_core.settings.files import METHODS, OVERRIDE, method_file, names_in, no_project, ships


def copy_method(root: Path, name: str, new: str | None = None) -> Path:
    """Write the shipped method ``name`` as a file of the project, as ``new`` or in the shipped one's place.

    Returns:
        The file, below ``root``.

    Raises:
        ConfigError: there is no project, no such method is shipped, ``new`` is no name or one of a shipped method, or
            the project has the file.
    """
    source, file = shipped.FOLDER / method_file(name), method_file(name if new is None else new)
    problems = []
    if not (root / "params.yaml").is_file():
        problems.append(no_project(root))
    if not is_name(name) or not source.is_file():
        known = names_in(shipped.FOLDER / METHODS)
        message = f"'{name}' is not a method with a file of its own that regft ships"
        problems.append(Problem("unknown-method", "--copy", 0, "", message, suggestion(name, known, "shipped methods")))
    if new is not None and not is_name(new):
        hint = "use lower-case letters, digits, - and _"
        problems.append(Problem("bad-name", "--as", 0, "", f"'{new}' cannot name a method", hint))
    elif new is not None and ships(METHODS, new):
        message, hint = f"regft ships a method '{new}'", "take another name, or copy that one without --as"
        problems.append(Problem("name-taken", "--as", 0, "", message, hint))
    elif (root / file).exists():
        problems.append(Problem("in-the-way", file, 0, "", "exists and was left as it is", "edit it, or move it away"))
    if problems:
        raise ConfigError(problems)
    text = source.read_text(encoding="utf-8")
    write_text(root / file, text if new is not None else f"{OVERRIDE}: true\n{text}")
    return Path(file)
