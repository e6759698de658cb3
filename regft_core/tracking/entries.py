"""Entries for MLflow, made of the files under ``work/`` and ``reports/``. Nothing here imports MLflow.

Only files are read, so a cell that DVC restored from its cache looks the same as one that was trained here.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, NamedTuple

import yaml

from regft_core.disk.canonical import canonical_json, sha256_file, sha256_text
from regft_core.disk.reading import read_json
from regft_core.errors import StoreError
from regft_core.runs.records import MARK, Finding, RunRecord
from regft_core.runs.work import Work
from regft_core.settings.files import RESULTS
from regft_core.settings.grid import Cell
from regft_core.settings.papers.contamination import read_contamination

#: Characters of a parameter that MLflow takes, and of a dataset's digest.
LONGEST, DIGEST = 6000, 32
#: Name, digest, context (``training`` or ``evaluation``), folder and number of rows.
Dataset = tuple[str, str, str, str, int | None]


class Point(NamedTuple):
    """One number of a metric; ``time`` is in milliseconds since 1970."""

    name: str
    value: float
    step: int
    time: int


@dataclass(frozen=True)
class Entry:
    """One run in MLflow: of a seed, of a cell (whose seeds are nested in it), or of the report.

    Attributes:
        kind: ``run``, ``cell`` or ``report``.
        identity: of a run its cell, seed and key; of the report the digest of its files; of a cell its name.
        keys: seed -> key, of a run its own alone. A cell with another key for one of its seeds is another run.
        params: every setting by its path; what the comparison of two runs is made of.
        tags: an empty one says that there is nothing (any more).
        scores: metric -> its value now. ``points``: curves, which never change.
        evaluation: digest of what judged the run; empty before that.
        files: artifact -> its content, or the file with it. ``judged`` are those that the evaluation wrote.
    """

    kind: str
    identity: str
    name: str
    start: int
    end: int
    ok: bool = True
    keys: Mapping[str, str] = field(default_factory=dict)
    params: Mapping[str, str] = field(default_factory=dict)
    tags: Mapping[str, str] = field(default_factory=dict)
    scores: Mapping[str, float] = field(default_factory=dict)
    points: Sequence[Point] = ()
    evaluation: str = ""
    files: Mapping[str, str | Path] = field(default_factory=dict)
    judged: Mapping[str, Path] = field(default_factory=dict)
    datasets: Sequence[Dataset] = ()


def read_grid(root: Path, cells: Iterable[Cell], seeds: Sequence[int]) -> list[tuple[Entry, list[Entry]]]:
    """The entry of each cell that was trained, with those of its seeds.

    Raises DataError where a file of ``work/`` is not what it should be, StoreError for the report's numbers.
    """
    reported = read_json(root / RESULTS, dict) if (root / RESULTS).is_file() else {}
    exports = read_exports(root)
    trained = [cell for cell in cells if Work(root).manifest_file("finetune", cell).is_file()]
    found = (_cell(Work(root), cell, seeds, reported, exports) for cell in trained)
    return [(cell, runs) for cell, runs in found if runs]


def read_exports(root: Path) -> dict[str, str]:
    """Run key -> exported model directory, relative to the project."""
    found = {}
    for file in sorted((root / "exports").glob("*/regft.json")):
        try:
            key = read_json(file, dict).get("run_key")
        except StoreError:
            continue  # `regft predict` says what is wrong with it
        if isinstance(key, str):
            found[key] = file.parent.relative_to(root).as_posix()
    return found


def read_report(root: Path) -> Entry | None:
    """The report under ``reports/``; None before it was written."""
    folder = root / "reports"
    page = folder / "report.html"
    if not page.is_file():
        return None
    paths = (path.relative_to(folder) for path in sorted(folder.rglob("*")) if path.is_file())
    files = {path.as_posix(): folder / path for path in paths if not any(part.startswith(".") for part in path.parts)}
    digest = sha256_text("\n".join(f"{name} {sha256_file(path)}" for name, path in files.items()))
    time = int(page.stat().st_mtime * 1000)
    return Entry("report", f"report/{digest}", "report", time, time, files=files)


def parameters(cell: Cell, settings: Mapping[str, Any]) -> dict[str, str]:
    """Every setting of a cell by its path (``phases.search.repeat.times``); what is not set is left out."""
    flat = {"method": cell.method, "task": cell.task, "size": cell.size, **_flat(settings, "")}
    texts = {name: value if isinstance(value, str) and value else json.dumps(value) for name, value in flat.items()}
    return {
        name: text if len(text) <= LONGEST else f"{text[: LONGEST - 80]}... sha256 {sha256_text(text)}"
        for name, text in texts.items()
    }


def _flat(value: Any, prefix: str) -> dict[str, Any]:
    if not isinstance(value, Mapping):
        return {} if value is None else {prefix: value}
    if prefix and not value:
        return {prefix: {}}  # a regulariser without options is there all the same
    items = ((f"{prefix}.{key}" if prefix else str(key), inner) for key, inner in value.items())
    return {name: leaf for path, inner in items for name, leaf in _flat(inner, path).items()}


def _cell(
    work: Work, cell: Cell, seeds: Sequence[int], reported: Mapping[str, Any], exports: Mapping[str, str]
) -> tuple[Entry, list[Entry]]:
    manifest, folder = work.finetune(cell), f"{cell.task}-{cell.size}"
    result = work.evaluation(cell) if work.result_file(cell).is_file() else None
    evaluations = {run.seed: run for run in (result.runs if result else ())}
    searched = work.search(cell).runs if work.manifest_file("search", cell).is_file() else ()
    searches, findings = {run.seed: run for run in searched}, work.findings(cell)
    sets = list(dict.fromkeys(name for run in evaluations.values() for name in run.sets))
    primary = result.primary if result else ""
    tags = {
        **{"method": cell.method, "task": cell.task, "size": str(cell.size), "primary": primary},
        "regularisers": ", ".join({name: 0 for phase in manifest.regularisers.values() for name in phase}) or "none",
        "model": manifest.model.name if manifest.model else "none",
        MARK: reported.get(MARK) or "",
        "control_for": ", ".join(manifest.method.get("control_for") or ()),
        "differs_by": manifest.method.get("differs_by") or "",
        "contaminated": "",
    }
    if manifest.reads_encoder:
        seen = read_contamination(work.root).of(tags["model"], [cell.task, *(name for name in sets if name != "dev")])
        tags["contaminated"] = "; ".join(f"{name}: {what}" for name, what in seen.items())
    settings = manifest.model_dump(mode="json", exclude={"runs", "phase"}, exclude_unset=True)
    shared = Entry(
        kind="run",
        identity=f"{cell.method}/{folder}",
        name=f"{cell.method} {folder}",
        start=0,
        end=int(work.manifest_file("finetune", cell).stat().st_mtime * 1000),
        params=parameters(cell, manifest.settings),
        tags=tags,
        files={"config.yaml": _yaml(settings)},
    )
    records = {run.seed: run for run in manifest.runs}
    points = _points(work, cell, [records[seed] for seed in seeds if seed in records])
    runs = [
        _run(work, cell, shared, run, searches.get(run.seed), evaluations.get(run.seed), findings, points, exports)
        for run in (records[seed] for seed in seeds if seed in records)
    ]
    if not runs:
        return shared, []
    states = {run.tags["status"] for run in runs}
    own = reported.get(folder, {}).get(cell.method, {})
    scores = _means(runs, own)
    current = f"dev.{primary}.low" in scores  # else the report is about other runs
    words = {role: own.get(role) or "" if current else "" for role in ("verdict_reference", "verdict_control")}
    low = ", ".join(own.get("no_better_than_constant") or ()) if current else ""
    status = states.pop() if len(states) == 1 else "partly failed"
    entry = replace(
        shared,
        kind="cell",
        ok=status != "failed",
        start=min(run.start for run in runs),
        keys={seed: key for run in runs for seed, key in run.keys.items()},
        tags={**tags, **words, "no_better_than_constant": low, "status": status},
        scores=scores,
        datasets=list(_sets(work, cell, ["train", *sets])),
    )
    return entry, runs


def _run(
    work: Work, cell: Cell, shared: Entry, run: RunRecord, searched: RunRecord | None,
    evaluation: RunRecord | None, findings: Mapping[str, Finding],
    points: Mapping[int, Sequence[tuple[str, float, int]]], exports: Mapping[str, str],
) -> Entry:  # fmt: skip
    if evaluation is not None and evaluation.key != run.key:
        evaluation = None  # of an earlier run: the stage has not caught up
    failures = [one for one in (searched, run, evaluation) if one is not None and not one.ok]
    found, predictions = {}, []
    if evaluation is not None:
        found = {name: one for name, finding in findings.items() for one in finding.runs if one.seed == run.seed}
        predictions = sorted(work.predictions_file(cell, run.seed, "*").parent.glob("*.jsonl"))
    tags = {
        "seed": str(run.seed),
        "status": "failed" if failures else "ok",
        "error": (failures[-1].error or "unknown")[:LONGEST] if failures else "",
        "variant": run.variant or "",
        "degraded": "; ".join(run.degraded),
        "environment": ", ".join(f"{key} {value}" for key, value in sorted((run.environment or {}).items())),
        "collapsed": (evaluation and evaluation.collapsed) or "",
        "export": exports.get(run.key, ""),
    }
    seconds = ((searched.cost.train_seconds if searched else None) or 0.0) + (run.seconds or 0.0)
    start = shared.end - int(seconds * 1000)
    curves = points.get(run.seed, ())
    width = (shared.end - start) / max([1, *(step for _, _, step in curves)])
    record = {"search": searched, "finetune": run, "evaluation": evaluation}
    judged = canonical_json([evaluation and evaluation.plain(), {name: one.plain() for name, one in found.items()}])
    scalars = {
        f"{name}.{place}.{key}": float(value)
        for name, one in found.items()
        for place, own in one.scalars.items()
        for key, value in own.items()
    }
    return replace(
        shared,
        identity=f"{shared.identity}/{run.seed}/{run.key}",
        name=f"seed {run.seed} of {shared.name}",
        ok=not failures,
        start=start,
        keys={str(run.seed): run.key},
        params={**shared.params, "seed": str(run.seed)},
        tags={**shared.tags, **tags},
        scores=_scores(run, evaluation, shared.tags["primary"]) | scalars,
        points=[Point(name, value, step, start + int(width * step)) for name, value, step in curves],
        evaluation=sha256_text("\n".join([judged, *map(sha256_file, predictions)])) if evaluation else "",
        files={**shared.files, "run.yaml": _yaml({name: one.plain() for name, one in record.items() if one})},
        judged={f"predictions/{path.name}": path for path in predictions},
        datasets=[*_drawn(work, cell, run.seed), *_sets(work, cell, evaluation.sets if evaluation else ())],
    )


def _points(work: Work, cell: Cell, runs: Sequence[RunRecord]) -> dict[int, list[tuple[str, float, int]]]:
    """Seed -> (name, value, step) of its curves, what its method logged and the scores of its epochs."""
    found: dict[int, list[tuple[str, float, int]]] = {run.seed: [] for run in runs}

    def add(seed: int, phase: str, name: str, step: int, value: float | None) -> None:
        if value is not None:
            found[seed].append((name if phase == "finetune" else f"{phase}.{name}", value, step))

    stages, seeds, names = ("search", "finetune"), list(found), ("loss", "learning_rate", "gradient_norm")
    for seed, phase, step, *values in (point for stage in stages for point in work.curves(stage, cell, seeds) or ()):
        for name, value in zip(names, values, strict=True):
            add(seed, phase, name, step, value)
    for logged in (logged for stage in stages for logged in work.logged(stage, cell, seeds)):
        add(logged.seed, logged.phase, logged.name, logged.step, logged.value)
    for run, epochs in ((run, run.epoch_scores) for run in runs if run.epoch_scores is not None):
        for score in epochs.scores:
            add(run.seed, score.phase, f"epoch.{score.rows}.{epochs.metric}", score.step, score.score)
    return found


def _scores(run: RunRecord, evaluation: RunRecord | None, primary: str) -> dict[str, float]:
    """Final numbers of one run; ``primary`` is the task's main metric on the development set."""
    sets = evaluation.sets if evaluation else {}
    scores: dict[str, float | None] = {"primary": sets["dev"].metrics.get(primary) if "dev" in sets else None}
    for name, judged in sets.items():
        scores |= {f"{name}.{metric}": value for metric, value in judged.metrics.items()}
        scores |= {f"{name}.{metric}.majority": value for metric, value in judged.majority.items()}
    if evaluation is not None and evaluation.ok:
        scores["collapsed"] = int(bool(evaluation.collapsed))
    cost = run.cost.plain() | (evaluation.cost.plain() if evaluation else {})
    scores |= {f"cost.{name}": value for name, value in cost.items()}
    scores |= {"final_loss": run.final_loss, "steps": run.steps}
    return {name: float(value) for name, value in scores.items() if value is not None}


def _means(runs: Sequence[Entry], reported: Mapping[str, Any]) -> dict[str, float]:
    """Means over the runs that did not fail, and the report's intervals where they are about the same runs."""
    good = [run for run in runs if run.ok]
    scores = {}
    for name in dict.fromkeys(name for run in good for name in run.scores):
        values = [run.scores[name] for run in good if name in run.scores]
        scores[name] = sum(values) / len(values)
    collapsed = sum(run.scores.get("collapsed", 0.0) for run in good)
    scores |= {"runs": float(len(runs)), "failed_runs": float(len(runs) - len(good)), "collapsed_runs": collapsed}
    for place, metrics in reported.items():
        for metric, bounds in metrics.items() if isinstance(metrics, Mapping) else ():
            name, mean = f"{place}.{metric}", bounds.get("mean") if isinstance(bounds, Mapping) else None
            # A report older than the results describes other runs.
            if mean is None or abs(mean - scores.get(name, mean + 1)) > 1e-9 or bounds.get("n") != len(good):
                continue
            names = [name, "primary"] if name == f"dev.{runs[0].tags['primary']}" else [name]
            sides = [(side, bounds[side]) for side in ("low", "high") if bounds.get(side) is not None]
            scores |= {f"{one}.{side}": bound for one in names for side, bound in sides}
    ratios = (reported.get("cost_ratio") or {}).items()
    return scores | {f"cost.ratio_{kind}": float(v) for kind, v in ratios if kind != "declared" and v is not None}


def _drawn(work: Work, cell: Cell, seed: int) -> Iterator[Dataset]:
    """The training rows of one seed."""
    name = f"{cell.task}-{cell.size}"
    if work.subsample_file(cell.task, str(cell.size)).is_file():
        subsample = work.subsample(cell.task, str(cell.size))
        if (drawn := subsample.seeds.get(str(seed))) is not None:
            yield name, drawn.sha256[:DIGEST], "training", f"work/subsamples/{name}", subsample.n


def _sets(work: Work, cell: Cell, names: Iterable[str]) -> Iterator[Dataset]:
    """Whole sets of the task: ``train``, from which seeds draw, and those that are evaluated on."""
    if not work.task_file(cell.task).is_file():
        return
    task = work.task(cell.task)
    for name in names:
        digest = task.content.get("folds" if name == "dev" and task.folded else name)
        if digest is not None:
            rows = task.sets[name].n if name in task.sets else task.counts.get(name)
            context = "training" if name == "train" else "evaluation"
            yield f"{cell.task} {name}", digest[:DIGEST], context, f"work/datasets/{cell.task}", rows


def _yaml(value: Any) -> str:
    # The writer in C where there is one: these files are most of the time that a run takes.
    dumper = getattr(yaml, "CSafeDumper", yaml.SafeDumper)
    return str(yaml.dump(value, Dumper=dumper, sort_keys=False, allow_unicode=True))
