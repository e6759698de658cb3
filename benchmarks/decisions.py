"""Regret of three rules that choose a method: the report's, the best mean, and always the frozen encoder.

    python benchmarks/decisions.py simulate
    python benchmarks/decisions.py split --out PROJECT --rows 100 sst2 mrpc    # after real_tasks.py
    python benchmarks/decisions.py regret PROJECT                              # after `dvc repro` there

Regret is the true score of the best method minus that of the chosen one, in points. ``split`` keeps ``--rows`` rows of
each development set to decide by and makes the rest the set ``held_out``, whose score counts as the true one.
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

from regft_core.statistics.decision import beliefs

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
                # Costs rise with the number of the method: the first within the tolerance is the cheapest.
                chosen = (int(np.flatnonzero(losses <= TOLERANCE * POINT)[0]), int(losses.argmin()))
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


def regret(project: Path) -> None:
    """Print what each rule chose and its regret on ``held_out``."""
    results: dict[str, dict[str, Any]] = json.loads((project / "reports" / "results.json").read_text(encoding="utf-8"))
    primaries = {
        path.parent.name: yaml.safe_load((project / "pipelines/tasks" / f"{path.parent.name}.yaml").read_text())[
            "primary"
        ]
        for path in (project / "work" / "datasets").glob("*/task.json")
    }
    params = yaml.safe_load((project / "params.yaml").read_text(encoding="utf-8"))
    frozen = params["report"]["reference"]
    print("| set | report | best mean | best there | regret: report | best mean | " + f"{frozen} |")
    print("|---|---|---|---|---|---|---|")
    regrets = []
    for block, methods in sorted(results.items()):
        metric = primaries[block.rpartition("-")[0]]
        dev = {name: row["dev"][metric]["mean"] for name, row in methods.items() if "decision" in row}
        true = {name: 100 * methods[name]["held_out"][metric]["mean"] for name in dev}
        taken = next(name for name in dev if methods[name]["decision"]["taken"])
        best = max(dev, key=lambda name: dev[name])
        top = max(true, key=lambda name: true[name])
        found = [true[top] - true[name] for name in (taken, best, frozen)]
        regrets.append(found)
        print(f"| {block} | {taken} | {best} | {top} | " + " | ".join(f"{value:.1f}" for value in found) + " |")
    print("| mean | | | | " + " | ".join(f"{value:.2f}" for value in np.mean(regrets, axis=0)) + " |")


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
    options = parser.parse_args()
    if options.command == "simulate":
        simulate(options.worlds)
    elif options.command == "split":
        split(options.out, options.tasks, options.rows)
    else:
        regret(options.project)


if __name__ == "__main__":
    main()
