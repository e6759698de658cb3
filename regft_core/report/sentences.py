"""Comparisons in sentences; the verdicts come from intervals and nothing else."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from regft_core.names import plural
from regft_core.report.formatting import interval, listed, number, points, score, unit
from regft_core.report.model import Block, Comparison, Row
from regft_core.statistics.verdict import BELOW, GAIN, NONE, SAME, overall


@dataclass(frozen=True)
class Finding:
    """Summary of one method in one block, in words."""

    block: str
    method: str
    #: Against every control (the method at strength 0) where there is one, else against the reference; None without.
    word: str | None
    judged_by: str
    sentences: tuple[str, ...]


def findings(blocks: Sequence[Block], reference: str) -> tuple[Finding, ...]:
    """One finding per block and method; the reference, controls and constants are what others are compared with."""
    return tuple(
        _finding(block, row)
        for block in blocks
        for row in block.rows
        if row.method != reference and row.control_for is None and not row.constant
    )


def detectable(c: Comparison) -> str:
    """The true difference that these seeds and rows detect 80% of the time, or why there is no such number."""
    return f"identical answers to all {c.n_examples} rows" if c.identical else score(c.verdict.detectable, c.metric)


def _finding(block: Block, row: Row) -> Finding:
    controls, references = row.against("control"), row.against("reference")
    judged = controls or references
    if row.n_ok == 0 or not judged:
        text, why = f"{row.method} is compared with nothing: the grid has no reference and no control", "no comparison"
        if row.n_ok == 0:
            text, why = f"no seed of {row.method} ran to the end, so nothing can be said about it", "no finished run"
        return Finding(block.name, row.method, None, why, (f"On {block.title}, {text}.",))
    word, what = overall(c.verdict.word for c in judged), "control" if controls else "reference"
    first, *others = (_sentence(row, c, f"its {what} " if controls else f"the {what} ") for c in judged)
    sentences = [f"On {block.title}, {first}", *others]
    if not controls:
        sentences.append("It has no control in this grid, so the difference cannot be traced to one ingredient.")
    for c in (c for c in references if controls and not c.gain):
        uncredited = c.verdict.word == GAIN != word
        sentences.append(
            f"It is {GAIN} than the reference {c.other} ({_numbers(c)}), but that difference cannot be credited to "
            "what sets it apart from its controls."
            if uncredited
            else _sentence(row, c, "the reference ")
        )
    for c in row.against("replacement"):
        shown = c.verdict.why if c.estimate.n == 0 else detectable(c) if c.identical else _numbers(c)
        sentences.append(f"Against {c.other}{f' ({c.differs_by})' * bool(c.differs_by)}: {c.verdict.word} ({shown}).")
    sentences += _out_of_distribution(block, row, judged)
    unequal = [c for c in judged if c.compute_ratio is not None and c.compute_ratio > 1.1]
    sentences += [f"It declares {c.compute_ratio:.1f} times the compute of {c.other}." for c in unequal]
    if row.still:
        sentences.append(f"{row.method} gives the same answers under every seed: its seeds count as one answer.")
    sentences += [
        f"On {name} it is {BELOW}{'' if block.primary in by else f' (by {listed(by)})'}."
        for name, by in row.no_better(block.primary).items()
    ]
    parts = [f"{plural(len(row.failed), 'run')} failed"] if row.failed else []
    parts += [f"{len(row.collapsed)} collapsed ({BELOW})"] if row.collapsed else []
    sentences += [f"Of {plural(len(row.runs), 'seed')}, {listed(parts)}."] if parts else []
    judged_by = f"{what}{'s' if len(judged) > 1 else ''} {listed([c.other for c in judged])}"
    return Finding(block.name, row.method, word, judged_by, tuple(sentences))


def looks(c: Comparison) -> str:
    """How often a comparison was looked at; empty for the one planned look."""
    if c.look is None:
        return ""
    seeds = f"{listed([str(n) for n in c.look.seeds])} {'seed' if c.look.seeds == (1,) else 'seeds'}"
    if len(c.look.seeds) == 1:
        return f"look 1 at {seeds}, with an interval that allows for more"
    return f"look {c.look.number} of {len(c.look.seeds)} (at {seeds})"


def looked_at(blocks: Sequence[Block]) -> Iterator[str]:
    """One sentence per block whose comparisons were looked at more than once, or may be."""
    for block in blocks:
        looks = [c.look for row in block.rows for c in row.comparisons if c.set == "dev" and c.look is not None]
        if not looks:
            continue
        seeds = max((look.seeds for look in looks), key=len)
        text = "seeds may be added later (report.looks: open)"
        if len(seeds) > 1:
            at = listed([str(n) for n in seeds])
            text = f"seeds were added or changed after a look ({len(seeds)} looks, at {at} seeds)"
        yield f"{block.name}: {text}; verdicts come from wider intervals that hold over all looks"


def _numbers(c: Comparison) -> str:
    """The difference with the interval that its word comes from."""
    level = f"{number(100 * c.verdict.confidence, 0 if c.look is None else 1)}%"
    many = f" for {plural(c.verdict.comparisons, 'comparison')} together" if c.verdict.comparisons > 1 else ""
    bounds = f"{level}{many} {interval(c.verdict.interval, c.metric, signed=True)}" if c.verdict.interval else ""
    return ", ".join(
        filter(None, [points(c.estimate.mean, c.metric, signed=True), bounds, plural(c.estimate.n, "seed"), looks(c)])
    )


def _sentence(row: Row, c: Comparison, role: str) -> str:
    against = f"{row.method} against {role}{c.other}: {c.verdict.word}"
    if c.verdict.word == NONE:
        return f"{against} ({c.verdict.why if c.estimate.n == 0 else _numbers(c)})."
    if c.identical:
        return f"{against} ({detectable(c)} of {c.set})."
    if c.verdict.word == SAME:
        shown = f"{detectable(c)} {unit(c.metric)}"
        return f"{against} ({_numbers(c)}). With these seeds, a true difference of {shown} is detected 80% of the time."
    return f"{row.method} is {c.verdict.word} than {role}{c.other} ({_numbers(c)})."


def _out_of_distribution(block: Block, row: Row, judged: Sequence[Comparison]) -> Iterator[str]:
    others, what = {c.other for c in judged}, "control" if judged[0].gain else "reference"
    parts = []
    for name in block.sets:
        comparisons = [c for c in row.comparisons if c.set == name and c.other in others]
        if name != "dev" and comparisons:
            differences = listed([score(c.estimate.mean, c.metric, signed=True) for c in comparisons])
            parts.append(f"{overall(c.verdict.word for c in comparisons)} on {name} ({differences})")
    if parts:
        subject = f"that {what}" if len(others) == 1 else f"those {what}s"
        yield f"Out of distribution, against {subject}: {'; '.join(parts)}."
