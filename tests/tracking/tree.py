"""A small ``work/`` tree such as the stages write."""

from __future__ import annotations

import hashlib
import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import yaml
from safetensors.numpy import save_file

from regft_core.settings.grid import Cell

VANILLA, HYPE = Cell("vanilla", "rte", 300), Cell("hype_n", "rte", 300)
SEARCHED = Cell("weight_mixup", "rte", 300)
STEPS = 4
COST = {"train_seconds": 30.0, "seconds_per_step": 0.1, "declared_ratio": 1.5, "peak_memory_bytes": None}


def sha(*parts: Any) -> str:
    return hashlib.sha256(repr(parts).encode()).hexdigest()


@dataclass
class Tree:
    """Writes what the stages would write under ``root``."""

    root: Path

    def write(self, path: str, content: Any) -> Path:
        target = self.root / path
        target.parent.mkdir(parents=True, exist_ok=True)
        target.write_text(content if isinstance(content, str) else json.dumps(content, sort_keys=True))
        return target

    def task(self, task: str, sets: tuple[str, ...] = ("dev", "hans"), version: int = 0) -> None:
        described = {"task": task, "kind": "classification", "labels": ["no", "yes"], "metrics": ["accuracy"]}
        described |= {"primary": "accuracy", "sets": {name: {"n": 2} for name in sets}}
        described |= {"content": {name: sha(task, name, version) for name in ("train", *sets)}}
        self.write(f"work/datasets/{task}/task.json", described)

    def subsample(self, task: str, size: int, seeds: list[int]) -> None:
        described = {str(s): {"sha256": sha("rows", task, size, s), "label_counts": {"yes": 150}} for s in seeds}
        self.write(
            f"work/subsamples/{task}/{size}/manifest.json", {"task": task, "size": size, "n": size, "seeds": described}
        )

    def cell(
        self,
        cell: Cell,
        seeds: list[int],
        *,
        learning_rate: float = 1e-4,
        evaluated: bool = True,
        collapsed: tuple[int, ...] = (),
        shift: float = 0.0,
        members: int = 2,
    ) -> None:
        place, searches = cell.directory, cell == SEARCHED
        options = {
            "hype_n": {"hype": {"distribution": "normal", "scale": 1e-5}},
            "weight_mixup": {"weight_mixup": {"rank": 1}},
        }
        phases_of = ["search", "finetune"] if searches else ["finetune"]
        regularisers = {phase: options.get(cell.method, {}) for phase in phases_of}
        shared = {
            "phases": phases_of,
            "versions": {"python": "3.11"},
        }
        shared["settings"] = {
            "model": {"name": "minilm", "max_length": 128},
            "phases": {
                phase: {
                    "regularisers": regularisers[phase],
                    "training": {"epochs": 3, "learning_rate": learning_rate if phase == "finetune" else 1e-4},
                    "repeat": {"times": members} if phase == "search" else None,
                }
                for phase in phases_of
            },
        }
        config = {"params": {"grid": {"seeds": seeds}}, "methods": {cell.method: shared["settings"]["phases"]}}
        shared["config"] = yaml.dump(config)
        for kind in ("search", "finetune") if searches else ("finetune",):
            phases = [f"search-{member}" for member in range(members)] if kind == "search" else ["finetune"]
            runs, curves = [], ["seed,phase,step,epoch,loss,learning_rate,gradient_norm"]
            logged = ["seed,phase,step,name,value"]
            for seed in seeds:
                record: dict[str, Any] = {
                    **{"size": str(cell.size), "seed": seed, "variant": "paper", "degraded": []},
                    "key": self.key(cell, seed, learning_rate, kind, members),
                    "phases": {"search": self.key(cell, seed, learning_rate, "search", members)} if searches else {},
                    "environment": {"device": "cpu", "name": "x86_64 AVX2", "threads": 1, "deterministic": True},
                }
                done = {"status": "ok", "error": None, "steps": STEPS, "seconds": 30.0, "cost": COST, "final_loss": 0.5}
                runs.append(record | done)
                for phase in phases:
                    curves += [
                        f"{seed},{phase},{s},{s / STEPS},{1 / s},{learning_rate / s},{0.5 * s}"
                        for s in range(1, STEPS + 1)
                    ]
                    logged += [f"{seed},{phase},{s},hype.noise,{0.1 * s}" for s in range(1, STEPS + 1, 2)]
            self.write(f"work/{kind}/{place}/manifest.json", shared | {"phase": kind, "runs": runs})
            self.write(f"work/{kind}/{place}/curves.csv", "\n".join(curves) + "\n")
            self.write(f"work/{kind}/{place}/method_metrics.csv", "\n".join(logged) + "\n")
        if evaluated:
            self.evaluation(cell, seeds, learning_rate, collapsed, shift, members)

    def key(self, cell: Cell, seed: int, learning_rate: float = 1e-4, kind: str = "finetune", members: int = 2) -> str:
        return sha(cell, seed, learning_rate, kind, members)

    def stored(self, key: str, result: dict[str, Any], members: tuple[str, ...] = ()) -> None:
        """Write a run of the run store, with attention."""
        place = f".regft/runs/{key[:2]}/{key}"
        self.write(f"{place}/result.json", result)
        tensors = {"weight_mixup.attention": np.arange(6, dtype=np.float32).reshape(2, 3)}
        save_file(tensors, self.write(f"{place}/identity.json", {"members": members}).with_name("state.safetensors"))

    def evaluation(
        self,
        cell: Cell,
        seeds: list[int],
        learning_rate: float = 1e-4,
        collapsed: tuple[int, ...] = (),
        shift: float = 0.0,
        members: int = 2,
    ) -> None:
        place, runs = cell.directory, []
        for seed in seeds:
            key = self.key(cell, seed, learning_rate, members=members)
            record: dict[str, Any] = {"size": str(cell.size), "seed": seed, "key": key, "variant": "paper"}
            score = 0.6 + 0.01 * seed + shift + (0.05 if cell == HYPE else 0.0)
            sets = {
                name: {"n": 2, "metrics": {"accuracy": score - drop}, "majority": {"accuracy": 0.5}}
                for name, drop in (("dev", 0.0), ("hans", 0.1))
            }
            how = "constant" if seed in collapsed else None
            done = {"status": "ok", "error": None, "collapsed": how, "sets": sets, "cost": COST}
            runs.append(record | done)
            for name in sets:
                rows = [{"idx": str(i), "label": i, "prediction": 0, "scores": [score, 1 - score]} for i in range(2)]
                self.write(
                    f"work/evaluate/{place}/predictions/seed-{seed}/{name}.jsonl",
                    "".join(json.dumps(r) + "\n" for r in rows),
                )
        self.write(f"work/evaluate/{place}/result.json", {"primary": "accuracy", "runs": runs})

    def report(self, text: str, metrics: dict[str, Any] | None = None) -> None:
        self.write("reports/report.html", f"<html><body>{text}</body></html>")
        self.write("reports/results.json", metrics or {})
        self.write("reports/plots/curves.csv", "method,step\n")
