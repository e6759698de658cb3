"""Comparisons in sentences; the verdicts come from intervals and nothing else."""

from __future__ import annotations

from collections.abc import Sequence

from regft_core.names import plural
from regft_core.report.model import Block, Comparison, Finding, Row
from regft_core.report.page.formatting import interval, listed, number, score, some, unit
from regft_core.statistics.verdict import BELOW, GAIN, LOSS, NONE, SAME, Word, overall


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
    if c.identical:
        return f"identical answers to all {c.n_examples} rows"
    return score(c.verdict.detectable, c.metric)


def _finding(block: Block, row: Row) -> Finding:
    controls, references = row.against("control"), row.against("reference")
    judged = controls or references
    word = overall(c.verdict.word for c in judged)
    if row.n_ok == 0:
        text = f"On {block.title}, no seed of {row.method} ran to the end, so nothing can be said about it."
        return Finding(block.name, row.method, None, "no finished run", (text,))
    if not judged:
        text = f"On {block.title}, {row.method} is compared with nothing: the grid has no reference and no control."
        return Finding(block.name, row.method, None, "no comparison", (text,))
    what = "control" if controls else "reference"
    role = "its control " if controls else "the reference "
    first, *others = (_sentence(row, comparison, role) for comparison in judged)
    sentences = [f"On {block.title}, {first}", *others]
    if controls:
        sentences += [_beside_control(word, row, comparison) for comparison in references]
    else:
        sentences.append("It has no control in this grid, so the difference cannot be traced to one ingredient.")
    sentences += _out_of_distribution(block, row, controls or references, what)
    sentences += _costs(judged)
    if row.still:
        sentences.append(f"{row.method} gives the same answers under every seed: its seeds count as one answer.")
    sentences += [
        f"On {name} it is {BELOW}{'' if block.primary in by else f' (by {listed(by)})'}."
        for name, by in row.no_better(block.primary).items()
    ]
    if row.failed or row.collapsed:
        parts = [plural(len(row.failed), "run") + " failed"] if row.failed else []
        if row.collapsed:
            parts.append(f"{len(row.collapsed)} collapsed ({BELOW})")
        sentences.append(f"Of {plural(row.n_expected, 'seed')}, {listed(parts)}.")
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


def looked_at(blocks: Sequence[Block]) -> tuple[str, ...]:
    """One sentence per block whose comparisons were looked at more than once, or may be."""
    found = []
    for block in blocks:
        seen = [c.look for row in block.rows for c in row.comparisons if c.set == "dev" and c.look is not None]
        if not seen:
            continue
        most = max(seen, key=lambda look: len(look.seeds))
        if len(most.seeds) == 1:
            text = "seeds may be added later (report.looks: open)"
        else:
            text = (
                f"seeds were added or changed after a look ({len(most.seeds)} looks, at "
                f"{listed([str(n) for n in most.seeds])} seeds)"
            )
        found.append(f"{block.name}: {text}; verdicts come from wider intervals that hold over all looks")
    return tuple(found)


def _numbers(c: Comparison) -> str:
    """The difference with the interval that its word comes from."""
    level = f"{number(100 * c.verdict.confidence, 0 if c.look is None else 1)}%"
    many = f" for {plural(c.verdict.comparisons, 'comparison')} together" if c.verdict.comparisons > 1 else ""
    bounds = f"{level}{many} {interval(c.verdict.interval, c.metric, signed=True)}" if c.verdict.interval else ""
    parts = [f"{score(c.estimate.mean, c.metric, signed=True)} {unit(c.metric)}", bounds, plural(c.estimate.n, "seed")]
    return ", ".join(part for part in [*parts, looks(c)] if part)


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


def _beside_control(word: Word | None, row: Row, c: Comparison) -> str:
    if c.verdict.word == GAIN and word != GAIN:
        return (
            f"It is {GAIN} than the reference {c.other} ({_numbers(c)}), but that gain cannot be credited to what "
            "sets it apart from its controls."
        )
    return _sentence(row, c, "the reference ")


def _out_of_distribution(block: Block, row: Row, judged: Sequence[Comparison], what: str) -> list[str]:
    others = list(dict.fromkeys(c.other for c in judged))
    parts = []
    for name in block.sets:
        comparisons = [c for c in row.comparisons if c.set == name and c.other in others and c.role == what]
        if name == "dev" or not comparisons:
            continue
        differences = listed([score(c.estimate.mean, c.metric, signed=True) for c in comparisons])
        parts.append(f"{overall(c.verdict.word for c in comparisons)} on {name} ({differences})")
    subject = f"that {what}" if len(others) == 1 else f"those {what}s"
    return [f"Out of distribution, against {subject}: {'; '.join(parts)}."] if parts else []


def _costs(judged: Sequence[Comparison]) -> list[str]:
    unequal = [c for c in judged if c.compute_ratio is not None and c.compute_ratio > 1.1]
    return [f"It declares {c.compute_ratio:.1f} times the compute of {c.other}." for c in unequal]


def unbeaten(blocks: Sequence[Block]) -> tuple[str, ...]:
    """One sentence per block and finding: which arms train the encoder without beating the best that does not."""
    return tuple(text for block in blocks for text in _unbeaten(block))


def _unbeaten(block: Block) -> list[str]:
    if block.opponents is None:
        return []
    best, n = block.opponents.best, block.opponents.n
    what = f"{best}, which does not train it" if n == 1 else f"{best}, the best of {n} methods that do not train it"
    found = []
    for word in (SAME, LOSS):
        arms = [c for c in block.opponents.on("dev") if c.verdict.word == word]
        if arms:
            verb = "trains" if len(arms) == 1 else "train"
            found.append(
                f"On {block.title}, {some([_arm(c) for c in arms])} {verb} the encoder; {word} "
                f"{'than' if word == LOSS else 'to'} {what}."
            )
    return found


def _arm(c: Comparison) -> str:
    bounds = interval(c.verdict.interval, c.metric, signed=True)
    return f"{c.method} ({score(c.estimate.mean, c.metric, signed=True)} {unit(c.metric)}, {bounds})"
