"""Intervals that survive looking at the results and then adding seeds.

Whoever adds seeds until an interval excludes zero will be right about every interval and wrong about the claim: with
five looks about one null in seven is declared a difference at 95%. Each look therefore spends a share of
the error: the k-th has the confidence 1 - (1 - confidence) / (k (k + 1)). The shares add up to 1 - confidence over
any number of looks, so all intervals of one comparison hold together, whenever and for whatever reason
the seeds were added (Darling and Robbins, PNAS 1967; the spending view is that of Lan and DeMets, Biometrika
1983). It needs nothing of the interval but that it holds at a fixed number of seeds; a mixture sequence for Gaussian
means (Robbins, Annals of Mathematical Statistics 1970) knows nothing of examples and is wider still at three to ten
seeds.
"""

from __future__ import annotations


def shares(number: int) -> int:
    """Return into how many parts look ``number`` divides the error: k (k + 1).

    Raises:
        ValueError: looks are counted from 1.
    """
    if number < 1:
        raise ValueError(f"look {number}: looks are counted from 1")
    return number * (number + 1)
