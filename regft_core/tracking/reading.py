"""Reads what the stages left in ``work/`` and ``reports/`` into records.

Only files are read, so a cell that DVC restored from its cache looks the same as one that was
trained here. Nothing here imports MLflow.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeVar

from regft_core.io.canonical import canonical_json, sha256_file, sha256_text
from regft_core.io.reading import read_json
from regft_core.runs.results.logs import Log
from regft_core.runs.results.records import (
    MARK,
    EvaluationRecord,
    EvaluationResult,
    Finding,
    FindingRecord,
    PreparedTask,
    SearchManifest,
    SearchRecord,
    Subsample,
    TrainingManifest,
    TrainingRecord,
)
from regft_core.runs.results.work import Work
from regft_core.settings.files import RESULTS
from regft_core.settings.grid import Cell
from regft_core.settings.papers.contamination import Contamination, read_contamination
from regft_core.tracking.flatten import parameters, regulariser_names
from regft_core.tracking.records import CellRecord, DatasetRecord, ReportRecord, RunRecord
from regft_core.tracking.scores import cell_scores, evaluation_scores, run_scores

#: Digits of a digest that are kept; enough to tell the contents of one run apart.
DIGEST = 16
#: Characters of a dataset's digest; MLflow keeps 36.
MOST = 32
S = TypeVar("S", SearchRecord, TrainingRecord, EvaluationRecord, FindingRecord)


def read_grid(root: Path, cells: Iterable[Cell], seeds: Sequence[int]) -> list[CellRecord]:
    """Return the records of all cells that have been trained; cells without files are left out.

    Raises:
        DataError: a file of ``work/`` is there and is not what it should be.
        StoreError: the report's numbers cannot be read.
    """
    report_file = root / RESULTS
    report = read_json(report_file) if report_file.is_file() else {}
    exports, seen = read_exports(root), read_contamination(root)
    found = (_read_cell(Work(root), cell, seeds, report, exports, seen) for cell in cells)
    return [record for record in found if record is not None]


def read_exports(root: Path) -> dict[str, str]:
    """Run key -> exported model directory, relative to the project; the model card names the run."""
    found = {}
    for card in sorted((root / "exports").glob("*/README.md")):
        for line in card.read_text(encoding="utf-8", errors="replace").splitlines():
            key = line.removeprefix("- **Run**: ").strip("` ")
            if line.startswith("- **Run**: ") and key:
                found[key] = card.parent.relative_to(root).as_posix()
    return found


def read_report(root: Path) -> ReportRecord | None:
    """The report under ``reports/``, or None before it was written."""
    folder = root / "reports"
    page = folder / "report.html"
    if not page.is_file():
        return None
    files = tuple(
        path
        for path in sorted(folder.rglob("*"))
        if path.is_file() and not any(part.startswith(".") for part in path.relative_to(folder).parts)
    )
    text = "\n".join(f"{path.relative_to(folder).as_posix()} {sha256_file(path)}" for path in files)
    return ReportRecord(sha256_text(text)[:DIGEST], files, folder, int(page.stat().st_mtime * 1000))


def _read_cell(
    work: Work,
    cell: Cell,
    seeds: Sequence[int],
    report: Mapping[str, Any],
    exports: Mapping[str, str],
    seen: Contamination,
) -> CellRecord | None:
    """The record of a cell; None before its runs were trained."""
    if not work.manifest_file("finetune", cell).is_file():
        return None
    manifest = work.finetune(cell)
    result = work.evaluation(cell) if work.result_file(cell).is_file() else None
    name = f"{cell.method} {cell.task}-{cell.size}"
    tags = {
        "method": cell.method,
        "task": cell.task,
        "size": str(cell.size),
        "phases": ", ".join(manifest.phases),
        "regularisers": ", ".join(regulariser_names(manifest)) or "none",
        "model": manifest.model.name if manifest.model else "none",
    }
    if report.get(MARK):
        tags[MARK] = report[MARK]
    if controlled := manifest.method.get("control_for"):
        tags |= {"control_for": ", ".join(controlled), "differs_by": manifest.method.get("differs_by", "")}
    if result is not None:
        tags["primary"] = result.primary
    if manifest.reads_encoder:
        judged = [name for run in (result.runs if result else ()) for name in run.sets if name != "dev"]
        if found := seen.of(tags["model"], [cell.task, *judged]):
            tags["contaminated"] = "; ".join(f"{name}: {what}" for name, what in found.items())
    params = parameters(cell, manifest)
    drawn = work.subsample_file(cell.task, str(cell.size)).is_file()
    base = _Base(
        work,
        cell,
        name,
        tags,
        params,
        manifest.model_dump(mode="json", exclude_unset=True, exclude={"runs", "phase"}),
        manifest,
        work.search(cell) if work.manifest_file("search", cell).is_file() else None,
        result,
        work.findings(cell),
        work.subsample(cell.task, str(cell.size)) if drawn else None,
        work.task(cell.task) if work.task_file(cell.task).is_file() else None,
        exports,
        [work.curves(stage, cell) for stage in ("search", "finetune")],
        [work.logged(stage, cell) for stage in ("search", "finetune")],
    )
    runs = tuple(_read_run(base, run) for seed in seeds for run in manifest.runs if run.seed == seed)
    if not runs:
        return None
    reported = report.get(f"{cell.task}-{cell.size}", {}).get(cell.method, {})
    scores = cell_scores(runs, reported)
    if result is not None and f"dev.{result.primary}.low" in scores:  # else the report is about other runs
        tags |= {name: reported[name] for name in ("verdict_reference", "verdict_control") if name in reported}
        if reported.get("no_better_than_constant"):
            tags["no_better_than_constant"] = ", ".join(reported["no_better_than_constant"])
    outcomes = {"ok" if run.ok else "failed" for run in runs}
    tags["status"] = outcomes.pop() if len(outcomes) == 1 else "partly failed"
    judged = [name for run in (result.runs if result else ()) for name in run.sets]
    datasets = tuple(_sets(base, ["train", *judged]))
    return CellRecord(base.identifier, name, tags, params, scores, base.config, runs, datasets)


@dataclass(frozen=True)
class _Base:
    """What the seeds of a cell share."""

    work: Work
    cell: Cell
    name: str
    tags: Mapping[str, str]
    params: Mapping[str, str]
    config: Mapping[str, Any]
    finetune: TrainingManifest
    search: SearchManifest | None
    result: EvaluationResult | None
    findings: Mapping[str, Finding]
    subsample: Subsample | None
    prepared: PreparedTask | None
    exports: Mapping[str, str]
    curves: Sequence[Log]
    diagnostics: Sequence[Log]

    @property
    def identifier(self) -> str:
        """``method/task-size``."""
        return f"{self.cell.method}/{self.cell.task}-{self.cell.size}"


def _read_run(base: _Base, main: TrainingRecord) -> RunRecord:
    seed, cell = main.seed, base.cell
    searched = _of_seed(base.search.runs, seed) if base.search else None
    evaluated = _of_seed(base.result.runs, seed) if base.result else None
    if evaluated is not None and evaluated.key != main.key:
        evaluated = None  # it belongs to an earlier run: evaluate has not caught up
    predictions = tuple(sorted(base.work.predictions_file(cell, seed, "*").parent.glob("*.jsonl"))) if evaluated else ()
    failures = [run for run in (searched, main, evaluated) if run is not None and not run.ok]
    tags = dict(base.tags) | {"seed": str(seed), "status": "failed" if failures else "ok"}
    if failures:
        tags["error"] = (failures[-1].error or "unknown")[:5000]
    if main.variant:
        tags["variant"] = main.variant
    if main.degraded:
        tags["degraded"] = "; ".join(main.degraded)
    if here := main.environment:
        tags |= {"device": here["device"], "environment": f"{here['name']}, {here['threads']} threads"}
    if evaluated is not None and evaluated.collapsed:
        tags["collapsed"] = evaluated.collapsed
    if main.key in base.exports:
        tags["regft.export"] = base.exports[main.key]
    search_seconds = (searched.cost.train_seconds if searched else None) or 0.0
    manifests = [base.work.manifest_file(stage, cell) for stage in ("search", "finetune")]
    end = int(max(file.stat().st_mtime for file in manifests if file.is_file()) * 1000)
    found = {"search": searched.plain()} if searched else {}
    found["finetune"] = main.plain()
    lines = [line for log in (*base.curves, *base.diagnostics) for line in log.of(seed)]
    judged = evaluated.plain() if evaluated else None
    scored = [canonical_json(judged), *(f"{p.name} {sha256_file(p)}" for p in predictions)] if evaluated else []
    records = {name: _of_seed(finding.runs, seed) for name, finding in base.findings.items()} if evaluated else {}
    findings = {name: record for name, record in records.items() if record is not None}
    return RunRecord(
        cell=base.identifier,
        seed=seed,
        key=main.key,
        name=f"seed {seed} of {base.name}",
        ok=not failures,
        training=_digest(canonical_json(found), *lines),
        evaluation=_digest(*scored) if scored else "",
        tags=tags,
        params=dict(base.params) | {"seed": str(seed)},
        curves=base.curves,
        diagnostics=base.diagnostics,
        epoch_scores=main.epoch_scores,
        scores=run_scores(main, evaluated, base.result.primary if base.result else None) | evaluation_scores(findings),
        start=end - int((search_seconds + (main.seconds or 0.0)) * 1000),
        end=end,
        search_seconds=search_seconds,
        config=base.config,
        record={"training": found, "evaluation": judged},
        predictions=predictions,
        datasets=(*_drawn(base, seed), *_sets(base, evaluated.sets if evaluated else ())),
        evaluations={name: record.plain() for name, record in findings.items()},
    )


def _of_seed(runs: Iterable[S], seed: int) -> S | None:
    return next((run for run in runs if run.seed == seed), None)


def _drawn(base: _Base, seed: int) -> Iterator[DatasetRecord]:
    """The training rows of one seed."""
    drawn = base.subsample.seeds.get(str(seed)) if base.subsample else None
    if drawn is None or base.subsample is None:
        return
    name = f"{base.cell.task}-{base.cell.size}"
    profile = canonical_json({"rows": base.subsample.n, "seed": seed, "label_counts": drawn.label_counts})
    yield DatasetRecord(name, drawn.sha256[:MOST], "training", f"work/subsamples/{name}", profile)


def _sets(base: _Base, names: Iterable[str]) -> Iterator[DatasetRecord]:
    """Whole sets of the task: ``train``, from which seeds draw, and those that judged."""
    task = base.prepared
    if task is None:
        return
    for name in dict.fromkeys(names):
        digest = task.content.get("folds" if name == "dev" and task.folded else name)
        if digest is not None:
            rows = task.sets[name].n if name in task.sets else task.counts.get(name)
            context = "training" if name == "train" else "evaluation"
            profile, place = canonical_json({"rows": rows}), f"work/datasets/{base.cell.task}"
            yield DatasetRecord(f"{base.cell.task} {name}", digest[:MOST], context, place, profile)


def _digest(*parts: str) -> str:
    return hashlib.sha256("\0".join(parts).encode()).hexdigest()[:DIGEST]
