"""Does training the encoder pay? Every arm that trains it against the best arm that does not.

The opponent is picked by its mean on the same set, which flatters it: the comparison is a little
harder for the arms that train, never easier.
"""

from __future__ import annotations

from collections.abc import Sequence

from regft_core.reporting.model import Block, Comparison
from regft_core.reporting.page.formatting import interval, score, some, unit


def unbeaten(blocks: Sequence[Block]) -> tuple[str, ...]:
    """One sentence per block and finding: which arms train the encoder without beating the best that does not."""
    return tuple(text for block in blocks for text in _sentences(block))


def _sentences(block: Block) -> list[str]:
    if block.opponents is None:
        return []
    best, n = block.opponents.best, block.opponents.n
    what = f"{best}, which does not train it" if n == 1 else f"{best}, the best of {n} arms that do not train it"
    found = []
    for word, text in (("no evidence", "not shown to beat"), ("worse", "worse than")):
        arms = [c for c in block.opponents.comparisons if c.verdict.word == word]
        if arms:
            verb = "trains the encoder and is" if len(arms) == 1 else "train the encoder and are"
            found.append(f"On {block.title}, {some([_arm(c) for c in arms])} {verb} {text} {what}.")
    return found


def _arm(c: Comparison) -> str:
    # After seeds were added, the interval that survives all looks: the words above come from it.
    ends = c.interval if c.look is None else (c.look.low, c.look.high)
    bounds = "one seed" if c.interval is None or ends is None else interval(ends, c.metric, signed=True)
    return f"{c.method} ({score(c.estimate.mean, c.metric, signed=True)} {unit(c.metric)}, {bounds})"
