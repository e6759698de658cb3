"""What the comparisons say, in sentences; the words come from intervals and nothing else."""

from __future__ import annotations

from collections.abc import Sequence

from regft_core import metrics
from regft_core.names import plural
from regft_core.reporting.model import Block, Comparison, Finding, Row
from regft_core.reporting.page.formatting import NOT_AVAILABLE, interval, listed, p_value, score, unit
from regft_core.statistics.signed_rank import SMALLEST_USEFUL_N


def findings(blocks: Sequence[Block], reference: str) -> tuple[Finding, ...]:
    """One finding per block and method; the reference and controls are what others are judged by."""
    return tuple(
        _finding(block, row)
        for block in blocks
        for row in block.rows
        if row.method != reference and row.control_for is None
    )


def overall(comparisons: Sequence[Comparison]) -> str | None:
    """``better`` only when better than each, ``worse`` when worse than any; None without a comparison.

    ``nothing to judge`` when no comparison has a seed that both arms finished.
    """
    words = {comparison.verdict.word for comparison in comparisons}
    if len(words) == 1:
        return words.pop()
    return None if not words else "worse" if "worse" in words else "no evidence"


#: Below this a spread over seeds is rounding.
NO_SPREAD = 1e-12


def detectable(c: Comparison) -> str:
    """The true difference that these seeds find four times in five, or why there is no such number.

    Without spread the formula gives 0, as if any difference could be found; what it means is that
    the seeds say nothing about how much runs vary.
    """
    if c.identical:
        return f"identical predictions on all {c.n_examples} rows"
    if c.estimate.n < 2 or c.detectable is None:
        return NOT_AVAILABLE
    if c.estimate.seed_deviation < NO_SPREAD:
        return "no spread between the seeds"
    shown = score(c.detectable, c.metric)
    digits = metrics.find(c.metric).digits
    return f"under {10**-digits:.{digits}f}" if float(shown) == 0 else shown


def p_of(c: Comparison) -> str:
    """The signed-rank test's p with the seeds that it is about, or why there is none.

    It leaves out seeds without a difference, so few that remain could not have reached a small p.
    """
    if c.identical:
        return "nothing to test"
    if c.signed_rank is None:
        return NOT_AVAILABLE
    few = c.signed_rank.n < min(c.estimate.n, SMALLEST_USEFUL_N)
    return p_value(c.signed_rank.p_value) + (f" ({c.signed_rank.n} of {c.estimate.n} seeds differ)" if few else "")


def _finding(block: Block, row: Row) -> Finding:
    controls, references = row.against("control"), row.against("reference")
    judged = controls or references
    word = overall(judged)
    if row.n_ok == 0:
        text = f"On {block.title}, no seed of {row.method} ran to the end, so nothing can be said about it."
        return Finding(block.name, row.method, None, "no finished run", (text,))
    if not judged:
        text = f"On {block.title}, {row.method} is compared with nothing: the grid has no reference and no control."
        return Finding(block.name, row.method, None, "no comparison", (text,))
    what = "control" if controls else "reference"
    role = "its control " if controls else "the reference "
    first, *others = (_sentence(row, comparison, role) for comparison in judged)
    sentences = [f"On {block.title}, {first}", *(_capital(text) for text in others)]
    if controls:
        sentences += [_beside_control(word, comparison) for comparison in references]
    else:
        sentences.append("It has no control in this grid, so the difference cannot be traced to one ingredient.")
    sentences += _out_of_distribution(block, row, controls or references, what)
    sentences += _costs(judged)
    if row.failed or row.collapsed_on_dev:
        parts = [plural(len(row.failed), "run") + " failed"] if row.failed else []
        if row.collapsed_on_dev:
            parts.append(f"{row.collapsed_on_dev} did no better than a constant answer (collapsed)")
        sentences.append(f"Of {plural(row.n_expected, 'seed')}, {listed(parts)}.")
    judged_by = f"{what}{'s' if len(judged) > 1 else ''} {listed([c.other for c in judged])}"
    return Finding(block.name, row.method, word, judged_by, tuple(sentences))


def looks(c: Comparison) -> str:
    """How often a comparison was looked at and the interval that survives it; empty for the one planned look."""
    if c.look is None:
        return ""
    seeds = f"{listed([str(n) for n in c.look.seeds])} {'seed' if c.look.seeds == (1,) else 'seeds'}"
    bounds = interval((c.look.low, c.look.high) if c.estimate.n > 1 else None, c.metric, signed=True)
    if len(c.look.seeds) == 1:
        return f"look 1 at {seeds}, interval that allows for more {bounds}"
    return f"look {c.look.number} of {len(c.look.seeds)} (at {seeds}), interval that survives all looks {bounds}"


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
        found.append(f"{block.name}: {text}; words come from wider intervals that hold over all looks")
    return tuple(found)


def _numbers(c: Comparison) -> str:
    bounds = "interval n/a" if c.interval is None else f"interval {interval(c.interval, c.metric, signed=True)}"
    parts = [f"{score(c.estimate.mean, c.metric, signed=True)} {unit(c.metric)}", bounds, plural(c.estimate.n, "seed")]
    return ", ".join([*parts, looks(c)] if c.look is not None else parts)


def _capital(text: str) -> str:
    """The text as a sentence of its own; names of methods keep their letters."""
    return text[0].upper() + text[1:] if text.startswith(("there is", "no seed")) else text


def _sentence(row: Row, c: Comparison, role: str) -> str:
    if c.estimate.n == 0:
        return f"no seed of {row.method} ran to the end together with {role}{c.other}."
    if c.estimate.n == 1:
        return f"{row.method} and {role}{c.other} share one seed ({_numbers(c)}): no conclusion."
    if c.verdict.word == "no evidence":
        text = f"there is no evidence that {row.method} differs from {role}{c.other} ({_numbers(c)})"
        found = detectable(c)
        if c.identical:
            return f"{row.method} and {role}{c.other} made {found} of {c.set}: no difference to speak of."
        if found.startswith("no spread"):
            text += f"; {found}, so nothing can be said about what they would have found"
        elif found != NOT_AVAILABLE:
            text += f"; these seeds would find a true difference of {found} {unit(c.metric)} four times in five"
        return text + "."
    text = f"{row.method} is {c.verdict.word} than {role}{c.other} ({_numbers(c)})"
    return text + ("; fewer than six seeds: an indication only." if c.verdict.too_few_seeds else ".")


def _beside_control(word: str | None, c: Comparison) -> str:
    if c.verdict.word == "better" and word != "better":
        return (
            f"It is better than the reference {c.other} ({_numbers(c)}), but that gain cannot be credited to what "
            "sets it apart from its controls."
        )
    if c.verdict.word == "nothing to judge":
        return f"Against the reference {c.other} there is nothing to judge: no seed of both ran to the end."
    if c.verdict.word == "no evidence":
        return f"Against the reference {c.other}: no evidence of a difference ({_numbers(c)})."
    return f"It is {c.verdict.word} than the reference {c.other} ({_numbers(c)})."


def _out_of_distribution(block: Block, row: Row, judged: Sequence[Comparison], what: str) -> list[str]:
    others = list(dict.fromkeys(c.other for c in judged))
    parts = []
    for name in block.sets:
        comparisons = [c for c in row.comparisons if c.set == name and c.other in others and c.role == what]
        if name == "dev" or not comparisons:
            continue
        differences = listed([score(c.estimate.mean, c.metric, signed=True) for c in comparisons])
        parts.append(f"{overall(comparisons)} on {name} ({differences})")
    subject = f"that {what}" if len(others) == 1 else f"those {what}s"
    return [f"Out of distribution, against {subject}: {'; '.join(parts)}."] if parts else []


def _costs(judged: Sequence[Comparison]) -> list[str]:
    unequal = [c for c in judged if c.compute_ratio is not None and c.compute_ratio > 1.1]
    return [f"It declares {c.compute_ratio:.1f} times the compute of {c.other}." for c in unequal]
