"""Bias, coverage and regret of the report's decision, in simulated grids and on real sets.

    nice python benchmarks/decisions.py simulate [--worlds 300]                # writes results/decisions.json
    python benchmarks/decisions.py split --out PROJECT --rows 100 sst2 mrpc    # after real_tasks.py
    python benchmarks/decisions.py regret PROJECT                              # after `dvc repro` there

Regret is the true score of the best method minus that of the chosen one, in points; bias is the expected score of the
chosen one minus its true score. ``split`` keeps ``--rows`` rows of each development set to judge by and makes the rest
the set ``held_out``. ``regret`` divides the answers on both anew.
"""

from __future__ import annotations

import argparse
import gzip
import json
from itertools import product
from pathlib import Path
from random import Random
from typing import Any

import numpy as np
import numpy.typing as npt
import yaml
from verdicts import BASE, RESULTS, Seeds, answers, read, write

from regft_core.statistics.arms import Arms
from regft_core.statistics.bootstrap import example_weights, two_level
from regft_core.statistics.decision import beliefs, taken

POINT, TOLERANCE, RESAMPLES = 0.01, 0.5, 300
#: Methods, seeds and validation rows of the simulated grids.
GRIDS = ((2, 3, 100), (6, 3, 100), (6, 6, 300), (20, 6, 300), (34, 3, 300))
#: Of these also with every fifth method far off.
WITH_FAR = ((6, 3, 100), (20, 6, 300))
#: Deviation of true scores, in points; deviations over seeds (``mixed``: drawn for each method, by these shares).
DIFFERENCES, SPREADS = (0.0, 1.0, 3.0, 5.0), ("mixed", "4", "1.3")
MIXED, SHARES = (0.0, 2.5, 5.0, 10.0), (0.15, 0.4, 0.3, 0.15)
Array = npt.NDArray[np.float64]


def world(rng: np.random.Generator, grid: tuple[int, int, int], differ: float, spread: str, far: bool) -> list[Array]:
    """Return [[k, S, n] right answers, [k] true scores]; with ``far`` every fifth method is 25 points worse."""
    methods, seeds, rows = grid
    true = BASE + rng.normal(0, differ / 100, methods) - 0.25 * far * (np.arange(methods) % 5 == 1)
    true = np.round(200 * np.clip(true, 0.3, 0.93)) / 200  # few values: each spread of seeds is solved for
    spreads = rng.choice(MIXED, methods, p=SHARES) if spread == "mixed" else np.full(methods, float(spread))
    return [answers(rng, [Seeds(float(one)) for one in spreads], true.tolist(), seeds, rows), true]


def simulated(grid: tuple[int, int, int], differ: float, spread: str, far: bool, worlds: int) -> dict[str, float]:
    """Return the means of a cell, in points or as shares."""
    rng, found = np.random.default_rng([*grid, int(differ), len(spread), far]), []
    counts = example_weights(grid[2], RESAMPLES, 0) / grid[2]
    for _ in range(worlds):
        right, true = world(rng, grid, differ, spread, far)
        observed, resampled = right.mean(axis=2), np.einsum("bn,isn->bis", counts, right, optimize=True)
        alone = [two_level([*range(grid[1])], [], one, resampled[:, i], 0.95, 0) for i, one in enumerate(observed)]
        held, means = beliefs(observed, resampled, point=POINT), observed.mean(axis=1)
        # The mean error of all methods has the expectation 0: without it fewer worlds show a bias.
        pick, best, off = int(np.argmin([one.loss for one in held])), int(means.argmax()), float((means - true).mean())
        first = true > true.max() - 1e-9
        found.append(
            {
                "regret": 100 * (true.max() - true[pick]),
                "regret_best_mean": 100 * (true.max() - true[best]),
                "bias": 100 * (held[pick].expected - true[pick] - off),
                "bias_best_mean": 100 * (means[best] - true[best] - off),
                "coverage": held[pick].low <= true[pick] <= held[pick].high,
                "coverage_pointwise": alone[pick].low <= true[pick] <= alone[pick].high,
                "width": 100 * (held[pick].high - held[pick].low),
                "width_pointwise": 100 * (alone[pick].high - alone[pick].low),
                "said_best": held[pick].best,
                "is_best": first[pick] / first.sum(),
            }
        )
    return {key: round(float(np.mean([one[key] for one in found])), 4) for key in found[0]}


def simulate(worlds: int, out: Path) -> None:
    """Write bias, coverage, regret and calibration of every cell that the file does not have."""
    rows = read(out)
    for far, grid, spread, differ in product((False, True), GRIDS, SPREADS, DIFFERENCES):
        place = dict(zip(("methods", "seeds", "rows"), grid, strict=True))
        place |= {"differ": differ, "spread": spread, "far": far}
        if any(place.items() <= row.items() for row in rows) or (far and (spread == "4" or grid not in WITH_FAR)):
            continue
        count = worlds if grid[0] <= 6 else worlds // 2
        rows.append(place | {"worlds": count} | simulated(grid, differ, spread, far, count))
        write(out, rows)
        print(rows[-1], flush=True)


def split(project: Path, tasks: list[str], rows: int) -> None:
    """Divide the development set of each task of ``project`` into judging rows and the set ``held_out``."""
    for task in tasks:
        file = project / "pipelines" / "tasks" / f"{task}.yaml"
        declared = yaml.safe_load(file.read_text(encoding="utf-8"))
        dev = project / "data" / declared["splits"]["dev"]
        lines = gzip.decompress(dev.read_bytes()).decode("utf-8").removesuffix("\n").split("\n")
        order = list(range(len(lines)))
        Random(42).shuffle(order)
        names = {}
        for name, kept in (("judge", order[:rows]), ("held_out", order[rows:])):
            names[name] = f"{task}/{name}.jsonl.gz"
            target = project / "data" / names[name]
            target.parent.mkdir(parents=True, exist_ok=True)
            text = "".join(lines[i] + "\n" for i in sorted(kept))
            target.write_bytes(gzip.compress(text.encode("utf-8"), mtime=0))
        described = {key: declared[key] for key in ("columns", "labels", "label_values") if declared.get(key)}
        declared["splits"]["dev"] = names["judge"]
        declared["ood"] = {"held_out": {"source": {"kind": "files"}, "split": names["held_out"], **described}}
        file.write_text(yaml.safe_dump(declared, sort_keys=False, allow_unicode=True), encoding="utf-8")


def regret(project: Path, splits: int, rows: int) -> None:
    """Print each rule's mean regret, and how far the expected score is from the one on the other rows.

    The judged rows of both sets are divided anew ``splits`` times: ``rows`` rows decide, the others tell the truth.
    """
    results: dict[str, dict[str, Any]] = json.loads((project / "reports" / "results.json").read_text(encoding="utf-8"))
    params = yaml.safe_load((project / "params.yaml").read_text(encoding="utf-8"))
    rules = ("report", "expected score alone", "best mean", params["report"]["reference"])
    print(f"| set | regret: {' | '.join(rules)} | expected - true | within its interval |")
    print("|---|" + "---|" * 6)
    every = []
    for block, described in sorted(results.items()):
        task, _, size = block.rpartition("-")
        names = [name for name, row in described.items() if "decision" in row]
        costs = [described[name]["cost_ratio"]["measured"] for name in names]
        declared = yaml.safe_load((project / "pipelines" / "tasks" / f"{task}.yaml").read_text(encoding="utf-8"))
        labels, positive = declared.get("labels"), declared.get("positive_label")
        index = labels.index(positive) if positive in (labels or ()) else None
        gold, predictions = _judged(project, names, task, size)
        rng, found = np.random.default_rng(0), []
        for _ in range(splits):
            order = rng.permutation(len(gold))
            near, far = (
                Arms(
                    {name: {seed: of[part] for seed, of in runs.items()} for name, runs in predictions.items()},
                    gold[part],
                    declared["primary"],
                    samples=samples,
                    positive_label_index=index,
                )
                for part, samples in ((order[:rows], 300), (order[rows:], 2))
            )
            observed, resampled = near.table(names)
            true = 100 * far.table(names)[0].mean(axis=1)
            held = beliefs(observed, resampled, point=POINT)
            losses = [one.loss for one in held]
            pick = taken(losses, costs, TOLERANCE * POINT)
            picks = (pick, int(np.argmin(losses)), int(observed.mean(axis=1).argmax()), names.index(rules[-1]))
            inside = 100 * held[pick].low <= true[pick] <= 100 * held[pick].high
            found.append([*(true.max() - true[list(picks)]), 100 * held[pick].expected - true[pick], 100 * inside])
        every.append(np.mean(found, axis=0))
        print(f"| {block} | " + " | ".join(f"{value:.2f}" for value in every[-1][:-1]) + f" | {every[-1][-1]:.0f}% |")
    mean = np.mean(every, axis=0)
    print("| mean | " + " | ".join(f"{value:.2f}" for value in mean[:-1]) + f" | {mean[-1]:.0f}% |")


def _judged(project: Path, names: list[str], task: str, size: str) -> tuple[Array, dict[str, dict[int, Array]]]:
    """Gold labels [n] of both sets, and method -> seed -> predictions [n]."""
    gold = np.empty(0)
    found: dict[str, dict[int, Array]] = {name: {} for name in names}
    for name in names:
        for seed in (project / "work" / "evaluate" / name / task / size / "predictions").iterdir():
            texts = [(seed / f"{part}.jsonl").read_text(encoding="utf-8") for part in ("dev", "held_out")]
            rows = [json.loads(line) for text in texts for line in text.splitlines()]
            gold = np.array([row["label"] for row in rows])
            found[name][int(seed.name.removeprefix("seed-"))] = np.array([row["prediction"] for row in rows])
    return gold, found


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    commands = parser.add_subparsers(dest="command", required=True)
    one = commands.add_parser("simulate")
    one.add_argument("--worlds", type=int, default=300)
    one.add_argument("--out", type=Path, default=RESULTS / "decisions.json")
    two = commands.add_parser("split")
    two.add_argument("--out", type=Path, required=True)
    two.add_argument("--rows", type=int, default=100)
    two.add_argument("tasks", nargs="+")
    three = commands.add_parser("regret")
    three.add_argument("project", type=Path)
    three.add_argument("--splits", type=int, default=60)
    three.add_argument("--rows", type=int, default=100)
    options = parser.parse_args()
    if options.command == "simulate":
        simulate(options.worlds, options.out)
    elif options.command == "split":
        split(options.out, options.tasks, options.rows)
    else:
        regret(options.project, options.splits, options.rows)


if __name__ == "__main__":
    main()
