"""Builds a ``work/`` tree as the stages leave it, from a declared skill per method."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from itertools import product
from pathlib import Path
from typing import Any

import numpy as np

from regft_core.data.examples import Example, to_jsonl
from regft_core.evaluate.evaluated import evaluate_run, evaluated_set
from regft_core.report.read_grid import Inputs
from regft_core.rng import derive
from regft_core.runs.outputs import write_folder
from regft_core.runs.work import CURVES, Work
from regft_core.schema import StrictModel
from regft_core.schema.method import Method, Phase
from regft_core.schema.methods import DataConfig, MethodConfig, RepeatConfig
from regft_core.schema.params import ReportConfig
from regft_core.schema.training import TrainingConfig
from regft_core.settings.controls import Control
from regft_core.settings.project import Cell

TRAINING = TrainingConfig(epochs=3)


@dataclass(frozen=True)
class Arm:
    """What a method is and how its runs turn out."""

    #: Chance that a prediction is right (classification), or the correlation (regression).
    skill: float = 0.75
    #: Added out of distribution.
    shift: float = -0.1
    control_for: str | None = None
    #: The methods that it is at strength 0; None: the one that it controls for.
    zero_for: tuple[str, ...] | None = None
    overrides: Mapping[str, Any] = field(default_factory=dict)
    declared: float = 1.0
    seconds: float = 10.0
    search: bool = False
    #: Runs of the phase that it searches with.
    members: int = 2
    variant: str | None = None
    degraded: tuple[str, ...] = ()
    #: seed -> error text
    failed: Mapping[int, str] = field(default_factory=dict)
    #: seeds that predict one label
    collapsed: tuple[int, ...] = ()
    description: str = ""
    curves: bool = True
    logs: tuple[str, ...] = ()
    #: Where all runs were made, or (seed ->) the exceptions; None: the records do not say.
    environment: Mapping[str, Any] | None = None
    elsewhere: Mapping[int, Mapping[str, Any]] = field(default_factory=dict)
    trains_encoder: bool | None = None
    reads_text: bool = True
    encoder: str = "a" * 64
    #: Peak bytes on a GPU; None: on a CPU.
    memory: int | None = None


class Noise(StrictModel):
    scale: float = 1e-5


@dataclass(frozen=True)
class Task:
    """A task's shape."""

    kind: str = "classification"
    metrics: tuple[str, ...] = ("accuracy", "f1")
    n: int = 200
    ood: tuple[str, ...] = ("contrast",)
    labels: tuple[str, ...] = ("negative", "positive")


def methods_of(arms: Mapping[str, Arm]) -> dict[str, Method]:
    """The methods as ``Project.methods`` would give them."""
    found = {}
    for name, arm in arms.items():
        control = {"control_for": [arm.control_for], "differs_in": ["regularisers"]} if arm.control_for else {}
        config = MethodConfig.model_validate({"description": arm.description, **control})
        training = TrainingConfig.model_validate(TRAINING.model_dump() | dict(arm.overrides))
        plain = arm.control_for or name == "vanilla"
        regularisers = () if plain else (("noise", Noise(scale=2e-5)),)
        repeat = RepeatConfig(times=arm.members)
        search = Phase("search", DataConfig(split=0.8), "checkpoint", repeat, None, regularisers, training, {})
        last = Phase("finetune", DataConfig(), "checkpoint", None, None, regularisers, training, {})
        found[name] = Method(name, config, (search, last) if arm.search else (last,))
    return found


def controls_of(arms: Mapping[str, Arm]) -> Iterator[Control]:
    """The controls of the methods as ``Project.controls`` would give them."""
    for name, arm in arms.items():
        own = [arm.control_for] if arm.control_for else []
        zero = own if arm.zero_for is None else arm.zero_for
        for other in dict.fromkeys([*own, *zero]):
            yield Control(name, other, f"no {arm.control_for}" * bool(own), other in zero, name, listed=True)


def build(
    root: Path,
    arms: Mapping[str, Arm],
    tasks: Mapping[str, Task],
    sizes: Sequence[int | str] = (300,),
    seeds: Sequence[int] = range(6),
) -> list[Cell]:
    """Write everything and return the cells."""
    metas = methods_of(arms)
    cells = []
    for task_name, task in tasks.items():
        described = _task(root, task_name, task)
        gold = _gold(task_name, task)
        for set_name, of in gold.items():
            place = set_name if set_name == "dev" else f"ood/{set_name}"
            rows = [Example(f"r{i}", f"text <{i}>", None, label) for i, label in enumerate(of.tolist())]
            _write(root / "work" / "datasets" / task_name / f"{place}.jsonl", to_jsonl(rows))
        for size in sizes:
            _subsample(root, task_name, task, size, seeds)
            for name, arm in arms.items():
                cells.append(Cell(name, task_name, size))
                _cell(root, name, arm, metas[name], described, gold, task, size, seeds)
    return cells


def inputs_of(
    root: Path,
    arms: Mapping[str, Arm],
    tasks: Mapping[str, Task],
    seeds: Sequence[int],
    sizes: Sequence[int | str] = (300,),
    **report: Any,
) -> Inputs:
    """Write everything and return the grid as a report sees it; ``report``: values of that section."""
    cells, methods = build(root, arms, tasks, sizes, seeds), methods_of(arms)
    config, training = ReportConfig(**report), dict.fromkeys(tasks, TRAINING)
    return Inputs(root, cells, tuple(seeds), config, methods, [*controls_of(arms)], training=training)


def _write(path: Path, text: str) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text, encoding="utf-8")


def _json(path: Path, value: Any) -> None:
    _write(path, json.dumps(value, sort_keys=True))


@contextmanager
def edited(path: Path) -> Iterator[Any]:
    """Read a file of JSON, or of lines of JSON; write it back with the changes that the block makes."""
    lines, text = path.suffix == ".jsonl", path.read_text(encoding="utf-8")
    content = [json.loads(line) for line in text.splitlines()] if lines else json.loads(text)
    yield content
    _write(path, "".join(json.dumps(one) + "\n" for one in (content if lines else [content])))


def _hash(*parts: str) -> str:
    return f"{derive(0, *parts):064x}"


def key_of(arm: Arm, cell: Cell, seed: int, phase: str) -> str:
    """The key of a run: of its place, and of the settings that differ between arms of one place."""
    members = arm.members if arm.search else 0
    return _hash(cell.directory, str(seed), phase, json.dumps(dict(arm.overrides)), str(members))


def _task(root: Path, name: str, task: Task) -> dict[str, Any]:
    labels = None if task.kind == "regression" else list(task.labels)
    sets = {one: {"labels": labels, "label_map": None, "n": task.n} for one in ("dev", *task.ood)}
    described = {
        "task": name,
        "kind": task.kind,
        "labels": labels,
        "metrics": list(task.metrics),
        "primary": task.metrics[0],
        "positive_label": task.labels[-1] if task.kind == "classification" else None,
        "range": [0.0, 5.0] if labels is None else None,
        "keyword_segment": None,
        "counts": {"train": 5000, **dict.fromkeys(sets, task.n)},
        "dropped": {},
        "duplicates": {"train_within": 0, **dict.fromkeys(sets, 0)},
        "sets": sets,
        "source": {"kind": "files"},
        "content": {one: _hash(name, one) for one in ("train", *sets)},
    }
    _json(root / "work" / "datasets" / name / "task.json", described)
    measured = {
        one: {"rows": n, "measured": n, "unknown": 0.0, "median": 20, "p95": 60, "longest": 200, "cut": 0.01}
        for one, n in described["counts"].items()
    }
    lengths = {"encoder": "minilm", "max_length": 128, "limit": 512, "sets": measured}
    _json(root / "work" / "lengths" / f"{name}.json", lengths)
    return described


def _gold(name: str, task: Task) -> dict[str, np.ndarray]:
    rng = np.random.default_rng(derive(1, name))
    if task.kind != "regression":
        values = len(task.labels) if task.kind == "classification" else 2 ** len(task.labels)
        return {one: rng.integers(values, size=task.n) for one in ("dev", *task.ood)}
    return {one: rng.uniform(0, 5, size=task.n) for one in ("dev", *task.ood)}


def _subsample(root: Path, name: str, task: Task, size: int | str, seeds: Sequence[int]) -> None:
    n = 5000 if size == "full" else int(size)
    entry = {
        "label_counts": {label: n // len(task.labels) for label in task.labels} if task.kind != "regression" else None,
        "duplicates_with": dict.fromkeys(("dev", *task.ood), 0),
    }
    _json(
        root / "work" / "subsamples" / name / str(size) / "manifest.json",
        {
            "task": name,
            "size": size,
            "n": n,
            "stratified": False,
            "seeds": {str(seed): entry | {"sha256": _hash(name, str(size), str(seed))} for seed in seeds},
        },
    )


def _logits(arm: Arm, gold: np.ndarray, task: Task, seed: int, set_name: str, shift: float) -> np.ndarray:
    # Seeds of all arms share the examples' difficulty, as paired arms do.
    difficulty = np.random.default_rng(derive(seed, "difficulty", set_name)).random(gold.size)
    luck = np.random.default_rng(derive(seed, "luck", str(arm.skill), arm.control_for or "")).normal(0, 0.01)
    skill = arm.skill + shift + luck
    if task.kind == "regression":
        noise = np.random.default_rng(derive(seed, "noise", set_name)).normal(0, 1.5, gold.size)
        constant = seed in arm.collapsed
        return np.full((gold.size, 1), 2.5) if constant else (skill * gold + (1 - skill) * (noise + 2.5))[:, None]
    if task.kind == "multi_label":
        each = np.random.default_rng(derive(seed, "labels", set_name)).random((gold.size, len(task.labels)))
        present = (gold[:, None] >> np.arange(len(task.labels))) & 1 == 1
        constant = seed in arm.collapsed
        return np.ones(present.shape) if constant else np.where((each < skill) == present, 3.0, -3.0)
    right = difficulty < skill
    predicted = np.where(right, gold, (gold + 1) % len(task.labels))
    if seed in arm.collapsed:
        predicted = np.zeros_like(gold)
    return 3.0 * np.eye(len(task.labels))[predicted]


def _cell(
    root: Path, name: str, arm: Arm, meta: Method, described: dict[str, Any], gold: dict[str, np.ndarray], task: Task,
    size: int | str, seeds: Sequence[int],
) -> None:  # fmt: skip
    cell = Cell(name, described["task"], size)
    results, trained = [], []
    for seed in seeds:
        key = key_of(arm, cell, seed, "finetune")
        failed = arm.failed.get(seed)
        cost = {
            "forward_passes_per_step": arm.declared,
            "backward_passes_per_step": arm.declared,
            "declared_ratio": arm.declared,
            "train_seconds": arm.seconds,
            "seconds_per_step": arm.seconds / 57,
            "real_tokens": 9000,
            "padded_tokens": 10000,
            "peak_memory_bytes": arm.memory,
        }
        common = {
            "seed": seed, "size": str(size), "key": key, "status": "failed" if failed else "ok", "error": failed,
            "variant": arm.variant, "degraded": list(arm.degraded),
        }  # fmt: skip
        trained.append(
            common
            | ({"environment": where} if (where := arm.elsewhere.get(seed, arm.environment)) is not None else {})
            | {"phases": {"search": key_of(arm, cell, seed, "search")} if arm.search else {}}
            | {"steps": 57, "seconds": arm.seconds, "cost": cost, "precision": "fp32",
               "final_loss": 0.2, "weights_sha256": "0" * 64}
        )  # fmt: skip
        if failed:
            results.append(common | {"collapsed": None, "sets": {}, "cost": {"search_seconds": 0.0}})
            continue
        logits = {s: _logits(arm, g, task, seed, s, 0.0 if s == "dev" else arm.shift) for s, g in gold.items()}
        rows = {s: [Example(f"r{i}", "", None, label) for i, label in enumerate(g)] for s, g in gold.items()}
        sets = {s: evaluated_set(s, rows[s], logits[s], described) for s in gold}
        found, predictions = evaluate_run(sets, described, reads_text=arm.reads_text)
        text = {s: "".join(json.dumps(row) + "\n" for row in of) for s, of in predictions.items()}
        searched = {"search_seconds": arm.seconds if arm.search else 0.0}
        results.append(common | found | {"cost": cost | searched, "predictions": text})
    work = Work(root)
    write_folder(work.folder("evaluate", cell), {"primary": described["primary"]}, results, None)
    head = {
        "phases": [phase.name for phase in meta.phases],
        "config": json.dumps({"params": {"grid": {"seeds": list(seeds)}}, "members": arm.members}),
        "settings": {
            "model": {"name": "minilm", "revision": None, "max_length": 128, "pairs": "jointly", "sha256": arm.encoder},
            "phases": {
                p.name: {
                    "start": p.start,
                    "data": p.data.model_dump(mode="json"),
                    "regularisers": {name: options.model_dump() for name, options in p.regularisers},
                    "training": meta.training.model_dump(mode="json"),
                    "repeat": p.repeat and p.repeat.model_dump(),
                }
                for p in meta.phases
            },
        },
        "versions": {"python": "3.12.0", "regft": "0.1.0", "torch": "2.13.0"},
        "reads_text": arm.reads_text,
    }
    if arm.trains_encoder is not None:
        head["trains_encoder"] = arm.trains_encoder
    for phase in ("search", "finetune") if arm.search else ("finetune",):
        steps = [run | _steps(phase, arm, run["seed"]) for run in trained]
        write_folder(work.folder(phase, cell), head, steps, None)
        if not arm.curves:
            (work.folder(phase, cell) / CURVES).unlink()


def _steps(phase: str, arm: Arm, seed: int) -> dict[str, list[list[Any]]]:
    """What a run recorded of each step of a phase: its curve, and what the method logged."""
    rng = np.random.default_rng(derive(seed, "curve"))
    members = ["finetune"] if phase == "finetune" else [f"search-{i}" for i in range(arm.members)]
    curve = [
        [name, step, step / 19, 0.7 * np.exp(-step * arm.skill / 20) + 0.05 * rng.random(), 1e-4 * (1 - step / 57), 1.0]
        for name, step in product(members if seed not in arm.failed else (), range(1, 58))
    ]
    return {"curve": curve, "diagnostics": [[phase, step, name, step * 0.5] for name in arm.logs for step in (1, 9, 3)]}
