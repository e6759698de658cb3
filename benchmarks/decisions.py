"""Regret of rules that choose a method: the report's, the best mean, and always the frozen encoder.

    python benchmarks/decisions.py simulate
    python benchmarks/decisions.py split --out PROJECT --rows 100 sst2 mrpc    # after real_tasks.py
    python benchmarks/decisions.py regret PROJECT                              # after `dvc repro` there

Regret is the true score of the best method minus that of the chosen one, in points. ``split`` keeps ``--rows`` rows of
each development set to judge by and makes the rest the set ``held_out``. ``regret`` divides the answers on both anew.
"""

from __future__ import annotations

import argparse
import gzip
import json
from pathlib import Path
from random import Random
from typing import Any

import numpy as np
import numpy.typing as npt
import yaml
from scipy.stats import norm

from regft_core.statistics.arms import Arms
from regft_core.statistics.decision import beliefs, taken

POINT = 0.01
TOLERANCE = 0.5
#: Judging rows, seeds and methods of the simulated grids.
GRIDS = ((70, 3, 6), (70, 6, 6), (270, 5, 6), (488, 3, 6), (488, 6, 6), (1000, 6, 20))
#: Shares of methods whose runs scatter by this many points.
SPREADS, SHARES = (0.0, 2.5, 5.0, 10.0), (0.15, 0.4, 0.3, 0.15)
Array = npt.NDArray[np.float64]


def world(rng: np.random.Generator, rows: int, seeds: int, methods: int, gain: float) -> tuple[Array, Array]:
    """Return ([k, S, n] right answers, [k] true scores); method 0 is a frozen encoder, rows differ in difficulty."""
    skill = np.clip(0.8 + np.concatenate([[0.0], rng.normal(0, gain, methods - 1)]) / 100, 0.02, 0.98)
    spread = rng.choice(SPREADS, methods, p=SHARES) / 100
    spread[0] = 0
    grid = norm.ppf((np.arange(200) + 0.5) / 200)
    true = np.clip(skill[:, None] + spread[:, None] * grid, 0.02, 0.98).mean(axis=1)
    of_runs = np.clip(skill[:, None] + spread[:, None] * rng.standard_normal((methods, seeds)), 0.02, 0.98)
    latent = np.sqrt(0.5) * rng.standard_normal(rows) + np.sqrt(0.25) * rng.standard_normal((methods, 1, rows))
    latent = latent + np.sqrt(0.25) * rng.standard_normal((methods, seeds, rows))
    latent[0] = latent[0, :1]
    return (latent < norm.ppf(of_runs)[:, :, None]).astype(float), true


def simulate(worlds: int) -> None:
    """Print mean regret by grid and by how much methods differ."""
    print("| gains (deviation) | rows, seeds, methods | report | expected score alone | best mean | frozen encoder |")
    print("|---|---|---|---|---|---|")
    for gain in (3.0, 1.0):
        for rows, seeds, methods in GRIDS:
            rng, regrets = np.random.default_rng(0), []
            for _ in range(worlds):
                right, true = world(rng, rows, seeds, methods, gain)
                observed = right.mean(axis=2)
                weights = rng.multinomial(rows, np.full(rows, 1 / rows), 300) / rows
                held = beliefs(observed, np.einsum("bn,isn->bis", weights, right), point=POINT)
                losses = np.array([b.loss for b in held])
                # Costs rise with the number of the method.
                chosen = (taken(list(losses), range(methods), TOLERANCE * POINT), int(losses.argmin()))
                picks = (*chosen, int(observed.mean(axis=1).argmax()), 0)
                regrets.append([100 * (true.max() - true[pick]) for pick in picks])
            means = " | ".join(f"{value:.2f}" for value in np.mean(regrets, axis=0))
            print(f"| {gain:g} | {rows}, {seeds}, {methods} | {means} |", flush=True)


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
            interval = near.one(names[pick])
            inside = 100 * interval.low <= true[pick] <= 100 * interval.high
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
        simulate(options.worlds)
    elif options.command == "split":
        split(options.out, options.tasks, options.rows)
    else:
        regret(options.project, options.splits, options.rows)


if __name__ == "__main__":
    main()
