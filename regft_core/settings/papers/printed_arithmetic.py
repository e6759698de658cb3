"""Whether the means and differences that a paper prints follow from the numbers beside them.

Printed numbers are rounded, and papers may average before they round. So a mean may be off by half a unit in the last
place of its parts and half a unit in its own; a difference by half a unit more.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence

from regft_core.schema.report import Part

Scores = Mapping[str, float]
Means = Mapping[str, Sequence[Part]]


def leaves(parts: Iterable[Part]) -> list[str]:
    """Columns in a mean, those of its nested lists too."""
    return [name for part in parts for name in ([part] if isinstance(part, str) else part)]


def mean(parts: Sequence[Part], scores: Scores, means: Means) -> float | None:
    """The mean of ``parts`` in points; None where a part is neither printed nor the mean of printed ones.

    A nested list is the printed mean of just these columns where there is one (MNLI over both of its sets).
    """
    found = [_value(part, scores, means) for part in parts]
    known = [value for value in found if value is not None]
    return sum(known) / len(known) if len(known) == len(found) else None


def _value(part: Part, scores: Scores, means: Means) -> float | None:
    if isinstance(part, str):
        return scores.get(part)
    for key, parts in means.items():
        if list(parts) == part and key in scores:
            return scores[key]
    return mean(part, scores, means)


def wrong_means(scores: Scores, recomputed: Scores, means: Means) -> Iterator[tuple[str, str]]:
    """(column, sentence) for means that do not follow and do not say so, or say so wrongly."""
    for key in {**recomputed, **{key: 0 for key in means if key in scores}}:
        value = mean(means[key], scores, means) if key in means and key in scores else None
        if value is None:
            if key in recomputed:
                yield key, f"recomputed '{key}' needs its parts and a printed mean to differ from"
            continue
        follows = abs(value - scores[key]) <= slack(_alike(scores, means, of_means=False), scores[key])
        if key not in recomputed and not follows:
            yield (
                key,
                f"{key} {scores[key]:g}, but the scores' mean is {value:.2f}; check the numbers, or write "
                f"'recomputed: {{{key}: {value:.2f}}}' if the paper is wrong",
            )
        elif key in recomputed and follows:
            yield key, f"the printed {key} {scores[key]:g} follows from the scores; remove 'recomputed'"
        elif key in recomputed and abs(value - recomputed[key]) > 0.005 + 1e-9:
            yield key, f"recomputed {recomputed[key]:g}, but the scores' mean is {value:.2f}"


def wrong_gains(gains: Scores, scores: Scores, base: Scores, means: Means) -> Iterator[tuple[str, str]]:
    """(column, sentence) for printed gains that are not the difference of ``scores`` and ``base``."""
    for key, gain in gains.items():
        ours, theirs = (one.get(key, mean(means[key], one, means) if key in means else None) for one in (scores, base))
        beside = [
            value for one in (scores, base) for value in _alike(one, means, of_means=key in scores and key in means)
        ]
        if ours is None or theirs is None:
            yield key, f"a gain of '{key}', which one of both rows does not print"
        elif abs(ours - theirs - gain) > slack(beside, gain) + 0.5 * unit(beside):
            yield key, f"gain {gain:+g}, but the scores differ by {ours - theirs:+.2f}; check the numbers"


def _alike(scores: Scores, means: Means, of_means: bool) -> list[float]:
    """Numbers that a paper prints with the same digits: those of means, or those of all other columns."""
    nested = [part for parts in means.values() for part in parts if not isinstance(part, str)]
    return [value for key, value in scores.items() if (key in means and list(means[key]) not in nested) == of_means]


def slack(parts: Iterable[float], printed: float) -> float:
    """How far ``printed`` may be from what follows from ``parts``, by rounding alone."""
    # YAML drops last zeros, so the printed value has the digits of its parts at least.
    last = unit(parts)
    return 0.5 * last + 0.5 * min(last, unit([printed])) + 1e-9


def unit(values: Iterable[float]) -> float:
    """One unit in the last printed place of the most precise value; papers print one decimal at least."""
    digits = max((len(repr(value).partition(".")[2].rstrip("0")) for value in values), default=1)
    return float(10.0 ** -max(digits, 1))
