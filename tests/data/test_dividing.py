"""Rows are dealt so that strata keep their shares and units stay together."""

from __future__ import annotations

from collections import Counter, defaultdict
from random import Random

import pytest

from regft_core.data.dividing import divide


@pytest.mark.parametrize("folds", [2, 3, 5, 10])
@pytest.mark.parametrize("counts", [(50, 50), (83, 17), (41, 30, 22)])
def test_single_rows_are_stratified_to_one_row(folds: int, counts: tuple[int, ...]) -> None:
    strata = [label for label, count in enumerate(counts) for _ in range(count)]
    parts = divide(strata, [str(row) for row in range(len(strata))], [1 / folds] * folds, Random(0))
    for label in range(len(counts)):
        held = Counter(part for part, stratum in zip(parts, strata, strict=True) if stratum == label)
        assert max(held.values()) - min(held.get(part, 0) for part in range(folds)) <= 1
    sizes = Counter(parts)
    assert max(sizes.values()) - min(sizes.values()) <= len(counts)


def test_a_share_is_kept_in_every_stratum() -> None:
    strata = [0] * 100 + [1] * 37
    parts = divide(strata, [str(row) for row in range(137)], [0.75, 0.25], Random(3))
    assert [sum(parts[:100]), sum(parts[100:])] == pytest.approx([25, 37 / 4], abs=1)


def test_units_stay_together_and_balance_like_scikit_learn() -> None:
    from sklearn.model_selection import StratifiedGroupKFold

    random = Random(1)
    units = [str(random.randrange(40)) for _ in range(400)]
    strata = [int(random.random() < 0.3 + 0.4 * (int(unit) % 2)) for unit in units]
    parts = divide(strata, units, [0.2] * 5, Random(0))
    places = defaultdict(set)
    for unit, part in zip(units, parts, strict=True):
        places[unit].add(part)
    assert {len(found) for found in places.values()} == {1}

    def unbalance(part_of: list[int]) -> float:
        held = Counter(zip(part_of, strata, strict=True))
        return sum((held[part, label] / strata.count(label) - 0.2) ** 2 for part in range(5) for label in (0, 1))

    ours, theirs = 0.0, 0.0
    for seed in range(10):
        ours += unbalance(divide(strata, units, [0.2] * 5, Random(seed)))
        split = [0] * 400
        for part, (_, judged) in enumerate(
            StratifiedGroupKFold(5, shuffle=True, random_state=seed).split(strata, strata, units)
        ):
            for row in judged:
                split[row] = part
        theirs += unbalance(split)
    assert ours <= 1.5 * theirs


def test_the_draw_is_a_function_of_its_arguments() -> None:
    units = [str(row) for row in range(60)]
    strata = [row % 2 for row in range(60)]
    first, again, other = (divide(strata, units, [0.5, 0.5], Random(seed)) for seed in (0, 0, 1))
    assert first == again != other
