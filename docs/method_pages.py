"""The site's page of each method: the idea, the formula, where in a step it acts, cost, controls, values, results.

Facts are those of the catalogue, of the published tables and of ``benchmarks/results``; ``method_notes.yaml`` adds
idea, formula and advice. Formulas are MathML, which browsers show without a script.
"""

from __future__ import annotations

import html
import json
import re
from collections.abc import Iterator, Mapping
from functools import cache
from pathlib import Path
from typing import Any

import yaml
from latex2mathml.converter import convert

from regft_core.grid.method_table import Line, catalogue, shipped_methods
from regft_core.settings.published import read_published
from regft_core.settings.yaml_paths import PUBLISHED, names

ROOT = Path(__file__).resolve().parents[1]
NOTES: dict[str, Any] = yaml.safe_load((ROOT / "docs" / "method_notes.yaml").read_text(encoding="utf-8"))
#: A repository that a source cites with a file and a line.
CITED = re.compile(r"\b[\w.-]+/[\w.-]+(?= [\w./-]+\.\w+:\d+)")
#: The boxes of a step's picture, each with what touches it (``method_table.TOUCHES``).
STEP = {
    "start": ("starting weights",),
    "input": ("batch",),
    "embedding": (),
    "layers": ("modules, sites or views",),
    "head": ("fits without steps",),
    "loss": ("loss", "step program"),
    "gradient": ("gradient",),
    "update": ("learning rates", "optimiser", "update"),
    "result": ("final weights", "exported weights"),
}
RESULTS = {"main_job": "the main job", "sst2_papers": "SST-2, `minilm`", "public_papers": "public tasks, `mpnet`"}


@cache
def catalogued() -> list[Line]:
    """Return the catalogue of shipped methods."""
    return catalogue(ROOT)


def pages() -> dict[str, str]:
    """Return the page of every shipped method, by its path on the site."""
    return {f"methods/{line.name}.md": "\n\n".join(_page(line)) for line in catalogued()}


def index() -> str:
    """Return the tables of all methods, a table for each group."""
    parts = []
    for group in NOTES["groups"]:
        rows = [
            f"| [`{line.name}`](methods/{line.name}.md) | {line.description} | "
            f"{'-' if line.cost is None else f'{line.cost:.3g}'} |"
            for line in catalogued()
            if group_of(line.name) == group
        ]
        parts.append("\n".join([f"### {group}\n", "| method | idea | cost |\n|---|---|---|", *rows]))
    return "\n\n".join(parts)


@cache
def regularisers(name: str) -> tuple[str, ...]:
    """Return the regularisers of a method, those of its last phase first; where none acts, what it is listed by."""
    phases = all_methods_once()[name].phases
    acting = tuple(dict.fromkeys(key for phase in reversed(phases) for key, _ in phase.regularisers))
    listed = next((key for key in ("head_only", "soup", "intermediate") if key in name), "vanilla")
    return (listed,) if listed == "head_only" or not acting else acting


@cache
def all_methods_once() -> Mapping[str, Any]:
    """Return every shipped method by name."""
    return shipped_methods(ROOT).methods


def group_of(name: str) -> str:
    """Return the group of a method: that of its first regulariser. Raises KeyError for one without a group."""
    return {member: group for group, members in NOTES["groups"].items() for member in members}[regularisers(name)[0]]


def _page(line: Line) -> Iterator[str]:
    kinds = regularisers(line.name)
    yield f"# {line.name}\n\n{line.description}. {f'*{line.paper}*' if line.paper else ''}"
    yield f"Group: [{group_of(line.name)}](../methods.md#all-methods)"
    for kind in kinds:
        note = NOTES["notes"][kind]
        if len(kinds) > 1:
            yield f"## {kind}"
        yield note["idea"]
        yield f'<div style="overflow-x:auto">{convert(note["formula"], display="block")}</div>'
    yield "## Where it acts"
    yield _step(line, kinds)
    yield f"It changes: {line.facts['touches']}."
    yield "## Cost and controls"
    cost = "depends on other rows" if line.cost is None else f"{line.cost:.3g} times plain fine-tuning"
    yield f"Declared cost: {cost} (passes, at 4 epochs). Phases: {line.facts['phases']}."
    for what in ("controls", "replacements", "variants", "combined"):
        if others := line.facts.get(what):
            yield f"{what.capitalize()}: {', '.join(_linked(name) for name in others.split(', '))}."
    yield "## When to take it"
    advice = [NOTES["notes"][kind] for kind in kinds]
    yield "\n".join(f"- **Take it:** {note['take']}\n- **Leave it:** {note['leave']}" for note in advice)
    yield "Advice without a number follows from how the method acts; it was not measured here."
    yield "## Results"
    yield "\n".join(_measured(line.name)) or "No result of this method is stored in `benchmarks/results`."
    if published := list(_published(line)):
        yield "Printed in papers, with plain fine-tuning of the same table in brackets:"
        yield "\n".join(["| table | method | encoder | rows | scores |\n|---|---|---|---|---|", *published])
    if claims := [f"- {says}" for arm, says in published_claims() if arm == line.name]:
        yield "Claimed in papers (the report of a preset shows what holds in your runs):"
        yield "\n".join(claims)
    if line.settings:
        yield "## Options"
        rows = [
            f"| `{one.path}` | `{json.dumps(one.value, default=str)}` | {_cell(pinned(one.source))} |"
            for one in line.settings
        ]
        yield "\n".join(["| option | value | source |\n|---|---|---|", *rows])


def pinned(source: str) -> str:
    """Return a source with the commits at which the released code that it cites was read."""
    return CITED.sub(lambda cited: f"{cited[0]}@{NOTES['commits'].get(cited[0], 'unknown')}", source)


def _linked(name: str) -> str:
    return f"[`{name}`]({name}.md)" if name in all_methods_once() else f"`{name}`"


def _step(line: Line, kinds: tuple[str, ...]) -> str:
    """Return the picture of a step with the boxes highlighted that the method touches."""
    places = "" if line.facts["touches"].startswith("settings") else line.facts["touches"]
    marked = {box for box, touches in STEP.items() if any(touch in places for touch in touches)}
    marked |= {"embedding"} if set(kinds) & set(NOTES["embedding"]) else set()
    shapes = []
    for i, box in enumerate(STEP):
        fill = 'fill="var(--md-primary-fg-color)"' if box in marked else 'fill="none"'
        ink = "var(--md-primary-bg-color)" if box in marked else "currentColor"
        shapes.append(
            f'<rect x="{4 + 84 * i}" y="4" width="68" height="32" rx="4" {fill} stroke="currentColor"/>'
            f'<text x="{38 + 84 * i}" y="24" text-anchor="middle" fill="{ink}">{box}</text>'
        )
        if i:
            shapes.append(f'<path d="M{84 * i - 11} 20h11m-4 -4l4 4l-4 4" fill="none" stroke="currentColor"/>')
    label = f"Where in a step {line.name} acts: {', '.join(marked) or 'nowhere'}"
    size = 'viewBox="0 0 752 40" width="752" style="max-width:100%" font-size="12"'
    return f'<svg role="img" aria-label="{label}" xmlns="http://www.w3.org/2000/svg" {size}>{"".join(shapes)}</svg>'


def _measured(name: str) -> Iterator[str]:
    head = "| measured on | score [95%] | minus another method |\n|---|---|---|"
    for file, title in RESULTS.items():
        stored = json.loads((ROOT / f"benchmarks/results/{file}.json").read_text(encoding="utf-8"))
        for task, cell in stored["tasks"].items():
            if (result := cell["methods"].get(name)) is None:
                continue
            if head:
                yield head
                head = ""
            score, others = result["score"], result["versus"] | result["control"]
            differences = [
                f"{100 * other['mean']:+.1f} [{100 * other['low']:+.1f}, {100 * other['high']:+.1f}] ({against}: "
                f"{other['verdict']})"
                for against, other in others.items()
            ]
            yield (
                f"| {title}: {task}, {cell['rows']} rows, {cell['metric']} | {100 * score['mean']:.1f} "
                f"[{100 * score['low']:.1f}, {100 * score['high']:.1f}] | {'; '.join(differences) or '-'} |"
            )


@cache
def published_tables() -> list[tuple[str, Any]]:
    """Return (title, table) of every published table."""
    tables = {name: read_published(ROOT, name) for name in names(ROOT, PUBLISHED)}
    return [(f"{table.paper}: {_item(table.table)}, {table.what}", table) for table in tables.values()]


def _item(table: str) -> str:
    """Return the number of a table as a title has it."""
    return f"table {table}" if table.isdigit() else table


def published_claims() -> list[tuple[str, str]]:
    """Return (method, claim with its place) of every claim of the papers."""
    return [
        (claim.arm, f"{claim.says} ({title}; {claim.where})")
        for title, table in published_tables()
        for claim in table.claims
    ]


def _published(line: Line) -> Iterator[str]:
    """Yield a row for each printed line of a method or a variant of it, with that of plain fine-tuning beside it."""
    arms = {line.name, *line.facts.get("variants", "").split(", ")}
    for title, table in published_tables():
        plain = {(row.encoder, row.size): row.scores for row in table.rows if row.arm == "vanilla"}
        for row in table.rows:
            if row.arm in arms:
                beside = plain.get((row.encoder, row.size), {}) if line.name != "vanilla" else {}
                scores = [
                    f"{key} {value:g}" + (f" ({beside[key]:g})" if key in beside else "")
                    for key, value in row.scores.items()
                ]
                yield f"| {title} | `{row.arm}` | {row.encoder} | {row.size or '-'} | {_cell(', '.join(scores))} |"


def _cell(text: str) -> str:
    return html.escape(text, quote=False).replace("|", "\\|")
