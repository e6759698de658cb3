"""Does training the encoder pay? Every arm that trains it against the best arm that does not.

The opponent is picked by its mean on the same set, which flatters it: the comparison is a little
harder for the arms that train, never easier.
"""

from __future__ import annotations

from collections.abc import Sequence

from regft_core.report.model import Block, Comparison
from regft_core.report.page.formatting import interval, score, some, unit
from regft_core.statistics.verdict import LOSS, SAME


def unbeaten(blocks: Sequence[Block]) -> tuple[str, ...]:
    """One sentence per block and finding: which arms train the encoder without beating the best that does not."""
    return tuple(text for block in blocks for text in _sentences(block))


def _sentences(block: Block) -> list[str]:
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
