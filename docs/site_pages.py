"""Pages of the site that are made when it is built: the reference from the code, and documents of other folders.

mkdocs calls ``on_files`` (mkdocs.yml).
"""

from __future__ import annotations

import inspect
import os
import re
import subprocess
import sys
import textwrap
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from types import UnionType
from typing import Annotated, Any, Literal, Union, get_args, get_origin

from mkdocs.config.defaults import MkDocsConfig
from mkdocs.structure.files import File, Files
from mkdocs.structure.pages import Page
from pydantic import BaseModel

sys.path.insert(0, str(Path(__file__).parent))  # mkdocs loads this file by its path
import method_pages

ROOT = Path(__file__).resolve().parents[1]


def commands() -> str:
    """``--help`` of every command."""
    from regft_core.stages.cli import commands as listed

    def help_of(name: str) -> str:
        environment = os.environ | {"COLUMNS": "80", "PYTHONPATH": str(ROOT), "NO_COLOR": "1"}
        command = [sys.executable, "-m", "regft_core", name, "--help"]
        done = subprocess.run(command, cwd=ROOT, env=environment, capture_output=True, text=True, check=True)
        return f"## {name}\n\n```text\n{done.stdout.strip()}\n```\n"

    with ThreadPoolExecutor(2) as pool:
        helps = list(pool.map(help_of, listed()))
    return "\n".join(["# Commands", "", "Every command runs in the project's folder.", "", *helps])


def _models(annotation: Any) -> Iterator[type[BaseModel]]:
    """The pydantic models inside of an annotation."""
    if isinstance(annotation, type) and issubclass(annotation, BaseModel):
        yield annotation
    for part in get_args(annotation):
        yield from _models(part)


def _type(annotation: Any) -> str:
    """An annotation in the words of YAML."""
    origin, parts = get_origin(annotation), get_args(annotation)
    if origin is Annotated:
        return _type(parts[0])
    if origin in (Union, UnionType):
        return " or ".join(dict.fromkeys("null" if part is type(None) else _type(part) for part in parts))
    if origin is Literal:
        return ", ".join(f"`{part}`" for part in parts)
    if origin in (list, tuple, set, frozenset):
        inner = [_type(part) for part in parts if part is not Ellipsis]
        return f"list of {' or '.join(dict.fromkeys(inner))}"
    if origin is not None and len(parts) == 2:
        return f"mapping to {_type(parts[1])}"
    if isinstance(annotation, type) and issubclass(annotation, BaseModel):
        return f"[{annotation.__name__}](#{annotation.__name__.lower()})"
    words = {int: "whole number", float: "number", str: "text", bool: "true or false"}
    return words.get(annotation, "a value") if isinstance(annotation, type) else "a value"


def _default(field: Any) -> str:
    if field.is_required():
        return "required"
    value = field.get_default(call_default_factory=True)
    if isinstance(value, BaseModel):
        return "-"
    shown = {None: "null", True: "true", False: "false"}.get(value) if isinstance(value, bool | None) else None
    return f"`{shown or value}`" if value not in ({}, [], ()) else "none"


def settings() -> str:
    """Every key of ``params.yaml``, of a task and of a method, from the schema."""
    from regft_core.schema.methods import MethodConfig
    from regft_core.schema.params import Params
    from regft_core.schema.tasks import TaskConfig

    parts = ["# Keys of the YAML files", ""]
    parts += ["`params.yaml` is [Params](#params), a task's file [TaskConfig](#taskconfig), a method's file"]
    parts += ["[MethodConfig](#methodconfig). A key that is not listed is an error.", ""]
    waiting: list[type[BaseModel]] = [Params, TaskConfig, MethodConfig]
    seen: set[type[BaseModel]] = set()
    while waiting:
        model = waiting.pop(0)
        if model in seen:
            continue
        seen.add(model)
        said = " ".join((inspect.getdoc(model) or "").split("\n\n")[0].split())
        parts += [f"## {model.__name__}", "", said, "", "| key | value | default | meaning |", "|---|---|---|---|"]
        for name, field in model.model_fields.items():
            shown, about = _type(field.annotation), _cell(field.description or "")
            parts.append(f"| `{field.alias or name}` | {shown} | {_cell(_default(field))} | {about} |")
            waiting += list(_models(field.annotation))
        parts.append("")
    return "\n".join(parts)


def _cell(text: str) -> str:
    return text.replace("|", "\\|").replace("\n", " ")


def _docstring(text: str) -> str:
    """A docstring as Markdown: roles become code, headings of sections bold, literal blocks fenced."""
    text = re.sub(r":(?:class|meth|func|mod|attr):`~?([^`]+)`", r"`\1`", text).replace("``", "`")
    text = re.sub(r"^(Args|Raises|Returns|Attributes):$", r"**\1**\n", text, flags=re.MULTILINE)
    return re.sub(r"^ {4}(\w[\w, ]*): ", r"- `\1`: ", text, flags=re.MULTILINE)


def _members(owner: Any, public: Callable[[str, Any], bool]) -> Iterator[str]:
    for name, value in vars(owner).items():
        inner = getattr(value, "__func__", value)
        if name.startswith("_") or not public(name, inner):
            continue
        signature = str(inspect.signature(inner)) if callable(inner) else ""
        signature = re.sub(r"'([^']*)'", r"\1", signature)
        yield f"### {name}\n\n```python\n{name}{signature}\n```\n\n{_docstring(inspect.getdoc(inner) or '')}\n"


def hooks() -> str:
    """The hooks of a regulariser, what it may declare, and what it is given in a step."""
    from regft_core.hooks import base, declare, description
    from regft_core.training.step import Step
    from regft_core.training.trainee import Trainee

    module = inspect.getdoc(base) or ""
    parts = ["# Hooks", "", "```text", module, "```", "", "## Regulariser", ""]
    parts += [_docstring(inspect.getdoc(base.Regulariser) or ""), ""]
    parts += _members(base.Regulariser, lambda name, value: inspect.isfunction(value))
    for model in (declare.Declares, description.Description):
        parts += [f"## {model.__name__}", "", "```text", textwrap.dedent(inspect.getdoc(model) or ""), "```", ""]
    for given in (Step, Trainee):
        parts += [f"## {given.__name__}", "", _docstring(inspect.getdoc(given) or ""), ""]
        parts += _members(given, lambda name, value: inspect.isfunction(value))
    return "\n".join(parts)


def python() -> str:
    """The Python calls."""
    import regft
    from regft_core import api

    parts = ["# Python", "", inspect.getdoc(regft) or "", "", "```text", inspect.getdoc(api) or "", "```", ""]
    for name in regft.__all__:
        value = getattr(regft, name)
        parts += [f"## {name}", "", _docstring(inspect.getdoc(value) or ""), ""]
        if inspect.isclass(value):
            parts += _members(value, lambda _, member: inspect.isfunction(member))
    return "\n".join(parts)


#: Page of the reference -> what writes it.
PAGES: dict[str, Callable[[], str]] = {
    "commands.md": commands,
    "settings.md": settings,
    "hooks.md": hooks,
    "python.md": python,
}


#: Documents outside of ``docs/`` -> their page.
OTHERS = {
    "ARCHITECTURE.md": "architecture.md",
    "CONTRIBUTING.md": "contributing.md",
    "CHANGELOG.md": "changelog.md",
    "SECURITY.md": "security.md",
    "benchmarks/README.md": "benchmarks.md",
    "benchmarks/statistics.md": "statistics.md",
    "data/README.md": "data.md",
}


_LINK = re.compile(r"(?<!!)\[([^\]]+)\]\(([^)#:]*)(#[^)]*)?\)")


def on_files(files: Files, *, config: MkDocsConfig) -> Files:
    """Add the pages that are made, and documents of other folders."""
    made = {f"reference/{name}": make() for name, make in PAGES.items()}
    made |= {page: (ROOT / path).read_text(encoding="utf-8") for path, page in OTHERS.items()}
    made |= method_pages.pages()
    for name, text in made.items():
        content = "\n".join(line.rstrip() for line in text.splitlines()) + "\n"
        files.append(File.generated(config, name, content=content))
    return files


def on_page_markdown(markdown: str, *, page: Page, config: MkDocsConfig, files: Files) -> str:
    """Lead links to documents of other folders to their pages; links to other files become plain text."""
    path = next((path for path, name in OTHERS.items() if name == page.file.src_uri), f"docs/{page.file.src_uri}")

    def link(found: re.Match[str]) -> str:
        words, target, anchor = found[1], found[2], found[3] or ""
        if not target:
            return found[0]
        at = os.path.normpath(os.path.join(os.path.dirname(path), target))
        name = OTHERS.get(at, at.removeprefix("docs/"))
        if files.get_file_from_path(name) is None:
            return words
        return f"[{words}]({os.path.relpath(name, os.path.dirname(page.file.src_uri))}{anchor})"

    tables = method_pages.index() if page.file.src_uri == "methods.md" else ""
    return _LINK.sub(link, f"{markdown}\n{tables}")
