"""Every view names the same verdict for the same pair, on random small grids and under a metric turned around."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from regft_core.catalogue import METRICS
from regft_core.report import build_report
from regft_core.report import page as pages
from regft_core.report.facts import best_of_k
from regft_core.report.looks import Looks
from regft_core.statistics.verdict import SYMBOLS, overall
from tests.report.grids import terminal
from tests.report.synthetic import Arm, Task, inputs_of
from tests.small_project import also

#: Of 100 grids the quick tests take 10.
GRIDS, QUICK, AT_ONCE = 100, 10, 10


def random_arms(rng: np.random.Generator, seeds: int) -> dict[str, Any]:
    """Two to six arms: equal, clearly apart, collapsed, failed, the same runs twice, frozen."""
    arms: dict[str, Any] = {}
    for i in range(int(rng.integers(2, 7))):
        skill = float(rng.choice([0.3, 0.7, 0.7, 0.72, 0.8, 0.95]))
        arms["vanilla" if i == 0 else f"arm{i}"] = Arm(
            skill,
            shift=float(rng.choice([-0.6, -0.1, 0.0])),
            control_for=f"arm{i - 1}" if i > 1 and rng.random() < 0.4 else None,
            collapsed=tuple(
                seed for seed in range(seeds) if rng.random() < rng.choice([0.0, 0.3, 1.0], p=[0.8, 0.1, 0.1])
            ),
            failed={seed: "NaN" for seed in range(seeds) if rng.random() < 0.05},
            trains_encoder=bool(rng.random() < 0.7),
            declared=float(rng.choice([1.0, 2.0])),
            curves=False,
        )
    return arms


NO_FIGURES = dict.fromkeys(("scores", "differences", "curves", "cost", "search", "epochs"), "")


def terminal_lines(report: Any, block: Any) -> dict[str, str]:
    """Method -> its line at a width where everything fits."""
    lines = terminal(report, 250).splitlines()
    first = next(i for i, line in enumerate(lines) if re.match(r"method +dev", line))
    return {line.split()[1]: line for line in lines[first + 1 : first + 1 + len(block.rows)]}


def check(report: Any, page: str) -> None:
    (block,) = report.blocks
    results = report.results[block.name]
    lines = terminal_lines(report, block)
    every = [c for row in block.rows for c in (*row.comparisons, *row.opposed)]
    words = {(c.method, c.other): c.verdict.word for c in every if c.set == "dev"}
    # One pair has one verdict, and the word is that of its interval, which holds the one that is drawn.
    assert len(words) == sum(c.set == "dev" for c in every)
    for c in every:
        bounds = c.verdict.interval
        assert (bounds is None) == (c.verdict.word == "no verdict")
        if bounds is not None:
            upwards = block.primary != "mse"
            better = bounds[0] > 0 if upwards else bounds[1] < 0
            worse = bounds[1] < 0 if upwards else bounds[0] > 0
            assert c.verdict.word == ("better" if better else "worse" if worse else "no difference shown")
            assert bounds[0] <= c.estimate.low + 1e-12
            assert bounds[1] >= c.estimate.high - 1e-12
            assert results[c.method][f"versus_{c.role}"][c.other][c.set]["verdict"] == c.verdict.word
    for row in block.rows:
        (cells,) = re.findall(rf'<tr[^>]* data-name="{row.method}">(.*?)</tr>', page, re.DOTALL)
        for role in ("reference", "control"):
            word = overall(c.verdict.word for c in row.against(role))
            assert results[row.method].get(f"verdict_{role}") == word
            if word is not None:
                assert f"{SYMBOLS[word]}" in lines[row.method]
                assert f'title="{word}: ' in cells
        below = row.no_better(block.primary)
        assert results[row.method]["no_better_than_constant"] == list(below)
        assert cells.count('title="no better than a constant answer"') == len(below)
        assert lines[row.method].count(" !") == len(below)
    found = block.decision
    if found.baseline is not None and len(found.choices) > 1:
        names = {name for c in found.choices for name in (c.method, *c.same)}
        winners = {a for (a, b), word in words.items() if b == found.baseline and word == "better" and a in names}
        trained = {row.method for row in block.rows if row.finetune.trains_encoder} if block.frozen else names
        assert set(found.beating) == winners & trained
        text = " ".join(found.sentences)
        assert not ("is shown to beat" in text and found.beating)
        for sentence in found.sentences:
            if (place := re.search(r"^On (\S+) \S+ scores .* no better", sentence)) is not None:
                assert place[1] in block.row(found.pick.method).no_better(block.primary)
        assert text in page or all(sentence in page for sentence in found.sentences)


@pytest.mark.parametrize(
    "part",
    [pytest.param(part, marks=[pytest.mark.slow] * (part * AT_ONCE >= QUICK)) for part in range(GRIDS // AT_ONCE)],
)
def test_no_two_views_contradict_each_other(part: int, tmp_path: Path) -> None:
    rng = np.random.default_rng(part)
    for number in range(AT_ONCE):
        seeds = int(rng.choice([1, 2, 3, 4]))
        arms, root = random_arms(rng, seeds), tmp_path / str(number)
        task = Task(
            *(("classification", ("accuracy",)) if rng.random() < 0.8 else ("regression", ("mse",))),
            n=int(rng.choice([1, 5, 20, 60])),
            ood=("contrast",) if rng.random() < 0.5 else (),
        )
        reference = str(rng.choice([*arms, "absent"]))
        inputs = inputs_of(root, arms, {"one": task}, range(seeds), bootstrap_samples=100, reference=reference)
        report = build_report(inputs, Looks())
        names = [block.name for block in report.blocks]
        check(report, pages.render(report, inputs, dict.fromkeys(names, NO_FIGURES), dict.fromkeys(names, ())))


# ----------------------------------------------------------------------------------- a metric of which less is better


ERROR_RATE = '''\
"""The share of examples whose prediction is wrong."""

from regft_core.lazy import np

KINDS = ("classification",)
LOWER_IS_BETTER = True
RANGE = (0.0, 1.0)


def score(gold, predicted, positive):
    return float(np.mean(gold != predicted))


def weighted(gold, predicted, weights, positive):
    return weights @ (predicted != gold).T.astype(np.float64) / len(gold)
'''
SKILLS = {"vanilla": 0.72, "good": 0.9, "alike": 0.89, "weak": 0.5, "control": 0.73}


@pytest.fixture(scope="module")
def error_rate(tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    ((folder := tmp_path_factory.mktemp("metrics")) / "error_rate.py").write_text(ERROR_RATE)
    with also(METRICS, folder):
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
        assert (one.baseline, one.beating, one.command) == (other.baseline, other.beating, other.command)
        assert one.beating
    for up, down in zip(*(built.report.across for built in mirrored), strict=True):
        assert (up.method, up.mean_rank, up.words) == (down.method, down.mean_rank, down.words)


def test_the_expected_best_of_k_trials_falls_where_less_is_better(error_rate: None) -> None:
    def curve(metric: str, *scores: float) -> dict[int, float]:
        tuned: Any = SimpleNamespace(trials=[SimpleNamespace(score=score) for score in scores])
        return dict(best_of_k([tuned], metric))

    up, down = curve("accuracy", 0.5, 0.7, 0.9), curve("error_rate", 0.5, 0.3, 0.1)
    assert down == pytest.approx({k: 1 - value for k, value in up.items()})
    assert down[3] == pytest.approx(0.1)
