"""The report under a metric of which less is better decides what it decides under the same metric turned around.

``error_rate`` is 1 - accuracy, on the same predictions: every choice, order and verdict must be the same.
"""

from __future__ import annotations

from collections.abc import Iterator
from types import SimpleNamespace
from typing import Any

import pytest

from regft_core.catalogue import METRICS
from regft_core.report.facts import best_of_k
from tests.report.synthetic import Arm, Task

ERROR_RATE = '''\
"""The share of examples whose prediction is wrong."""

from regft_core.lazy import np

KINDS = ("classification",)
LOWER_IS_BETTER = True
NEEDS_POSITIVE_LABEL = False
RANGE = (0.0, 1.0)


def score(gold, predicted, positive):
    return float(np.mean(gold != predicted))


def weighted(gold, predicted, weights, positive):
    return weights @ (predicted != gold).T.astype(np.float64) / len(gold)
'''
SKILLS = {"vanilla": 0.72, "good": 0.9, "alike": 0.89, "weak": 0.5, "control": 0.73}


@pytest.fixture(scope="module")
def error_rate(tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    folder = tmp_path_factory.mktemp("metrics")
    (folder / "error_rate.py").write_text(ERROR_RATE)
    with METRICS.also(folder):
        yield


@pytest.fixture(scope="module")
def mirrored(error_rate: None, make: Any) -> tuple[Any, Any]:
    """Reports of the same predictions by accuracy and by the error rate: two tasks, probes, many arms."""

    def of(metric: str) -> Any:
        arms = {name: Arm(skill, seconds=10 + i, shift=-0.3) for i, (name, skill) in enumerate(SKILLS.items())}
        arms["control"] = Arm(0.73, control_for="good")
        arms |= {f"more{i}": Arm(0.6 + 0.01 * i, failed={0: "NaN"} if i == 1 else {}) for i in range(2)}
        arms |= {name: Arm(s, trains_encoder=False) for name, s in (("probe", 0.8), ("words", 0.55))}
        tasks = {name: Task(metrics=(metric,), n=150) for name in ("one", "two")}
        return make(arms, tasks)

    return of("accuracy"), of("error_rate")


def test_verdicts_and_decisions_are_the_same(mirrored: tuple[Any, Any]) -> None:
    for up, down in zip(*(built.report.blocks for built in mirrored), strict=True):
        words = [
            {(c.method, c.other, c.role, c.set): c.verdict.word for row in block.rows for c in row.comparisons}
            for block in (up, down)
        ]
        assert words[0] == words[1]
        assert set(words[0].values()) == {"better", "worse", "no difference shown"}
        assert up.frozen == down.frozen == "probe"
        opposed = [[c.verdict.word for row in block.rows for c in row.opposed] for block in (up, down)]
        assert opposed[0] == opposed[1] != []
        assert up.ranks == down.ranks
        assert min(up.ranks.values(), key=lambda rank: rank.best).best == 1
        one, other = up.decision, down.decision
        assert one.pick.method == other.pick.method
        assert one.pick.method in ("good", "alike")
        assert (one.baseline, one.beating) == (other.baseline, other.beating)
        assert one.beating
        assert one.command == other.command
    for up, down in zip(*(built.report.across for built in mirrored), strict=True):
        assert (up.method, up.mean_rank, up.words) == (down.method, down.mean_rank, down.words)


def test_the_expected_best_of_k_trials_falls_where_less_is_better(error_rate: None) -> None:
    def curve(metric: str, *scores: float) -> dict[int, float]:
        tuned: Any = SimpleNamespace(trials=[SimpleNamespace(score=score) for score in scores])
        return dict(best_of_k([tuned], metric))

    up, down = curve("accuracy", 0.5, 0.7, 0.9), curve("error_rate", 0.5, 0.3, 0.1)
    assert down == pytest.approx({k: 1 - value for k, value in up.items()})
    assert down[3] == pytest.approx(0.1)
