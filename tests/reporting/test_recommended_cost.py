"""What the recommendation makes of cost, and of results that were looked at more than once."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from regft_core.reporting import recommend
from regft_core.reporting.model import Recommendation
from regft_core.statistics.arms import Arms

N = 200
RIGHT = {"reference": 120, "cheap": 170, "middle": 170, "dear": 170}


def advise(
    right: Mapping[str, int],
    measured: Mapping[str, float | None],
    *,
    declared: Mapping[str, float] | None = None,
    seeds: int = 4,
    jitter: int = 0,
    looks: int = 0,
) -> Recommendation:
    """The recommendation among arms that are right on this many of 200 examples; seed s on ``jitter`` * s more."""
    predictions = {
        name: {seed: (np.arange(N) < count + jitter * seed * (i % 2)).astype(int) for seed in range(seeds)}
        for i, (name, count) in enumerate(right.items())
    }
    arms = Arms(predictions, np.ones(N, int), "accuracy", samples=400)
    rows: Any = [
        SimpleNamespace(
            method=name,
            failed=(),
            n_expected=seeds,
            cost=SimpleNamespace(measured=measured[name], declared=(declared or measured)[name]),
            scores={"dev": {"accuracy": SimpleNamespace(estimate=arms.one(name))}},
        )
        for name in right
    ]
    data: Any = SimpleNamespace(described=SimpleNamespace(primary="accuracy"), task="t", size="100")
    return recommend.recommend(data, rows, arms, None, "reference", 0.95, range(seeds), looks)


def picked(found: Recommendation) -> tuple[str, ...]:
    """The arms of the commands, which are those that are recommended."""
    return tuple(command.split()[4] for command in found.commands)


def test_of_equal_means_the_cheapest_is_picked_and_the_others_follow_by_cost() -> None:
    found = advise(RIGHT, {"reference": 1.0, "dear": 4.0, "middle": 2.0, "cheap": 1.5})
    assert found.best is not None
    assert found.best.method == "cheap"
    assert [c.method for c in found.alike] == ["middle", "dear"]
    found = advise(RIGHT, {"reference": 1.0, "cheap": 4.0, "middle": 3.0, "dear": 2.0})
    assert found.best is not None
    assert found.best.method == "dear"
    assert [c.method for c in found.alike] == ["middle", "cheap"]


def test_an_arm_without_a_known_cost_is_never_the_cheaper_one() -> None:
    found = advise(RIGHT, {"reference": 1.0, "cheap": None, "middle": 3.0, "dear": 2.0}, declared=dict.fromkeys(RIGHT))  # type: ignore[arg-type]
    assert found.best is not None
    assert found.best.cost is None
    assert picked(found) == (found.best.method,)


@pytest.mark.parametrize(("cost", "named"), [(0.96, False), (0.94, True), (1.04, False)])
def test_cheaper_is_what_costs_clearly_less(cost: float, named: bool) -> None:
    """Seconds vary by a few per cent, so 4 per cent less is no reason to take the other arm."""
    found = advise(
        {**RIGHT, "best": 171}, {**dict.fromkeys(RIGHT, 3.0), "reference": 1.0, "best": 2.0, "cheap": 2 * cost}
    )
    assert found.best is not None
    assert found.best.method == "best"
    assert {c.method for c in found.alike} == {"cheap", "middle", "dear"}
    assert picked(found) == (("best", "cheap") if named else ("best",))
    assert ("none of them is clearly cheaper" in " ".join(found.sentences)) is not named


def test_measured_costs_are_compared_only_where_every_arm_has_one() -> None:
    """Measured seconds of some arms beside declared passes of others would compare nothing."""
    measured = {"reference": 1.0, "cheap": 9.0, "middle": None, "dear": 5.0}
    found = advise(RIGHT, measured, declared={"reference": 1.0, "cheap": 2.0, "middle": 3.0, "dear": 4.0})
    assert not found.cost_measured
    assert found.best is not None
    assert (found.best.method, found.best.cost) == ("cheap", 2.0)
    assert [(c.method, c.cost) for c in found.alike] == [("middle", 3.0), ("dear", 4.0)]
    assert "declared cost" in found.sentences[0]


def test_of_the_cheaper_arms_one_that_beats_the_baseline_is_named_first() -> None:
    """The baseline itself is the cheapest here and cannot be told from the picked arm, but another beats it."""
    found = advise({**RIGHT, "best": 171}, {**dict.fromkeys(RIGHT, 1.0), "best": 4.0, "cheap": 0.5, "middle": 0.7})
    assert found.beating
    assert found.best is not None
    cheaper = [c.method for c in found.alike]
    assert cheaper[0] == "cheap"
    known = replace(found, beating=("best", "middle"), sentences=(), commands=())
    named = recommend._worded(known, "t at 100 rows", "export {}".format).commands
    assert named == ("export best", "export middle")
    known = replace(found, beating=("best",), sentences=(), commands=())
    worded = recommend._worded(known, "t at 100 rows", "export {}".format)
    assert worded.commands == ("export best", "export cheap")
    assert "though it is itself not shown to beat reference" in " ".join(worded.sentences)


def test_every_look_at_the_results_makes_it_harder_to_beat_the_baseline() -> None:
    """Not only to lead all others: both are claims about the same data, looked at as often."""
    costs = dict.fromkeys(("reference", "other", "third"), 1.0)
    right = {"reference": 150, "other": 158, "third": 150}
    beating = [advise(right, costs, jitter=2, looks=looks).beating for looks in (0, 1, 2, 4, 8, 16)]
    assert beating[0] == ("other",)
    assert beating[-1] == ()
    kept = [bool(found) for found in beating]
    assert kept == sorted(kept, reverse=True)
