"""Reads what the stages left in ``work/`` and ``reports/`` into records.

Only files are read, so a cell that DVC restored from its cache looks the same as one that was
trained here. Nothing here imports MLflow.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from regft_core.config.contamination import Contamination, read_contamination
from regft_core.io import canonical_json, read_json, sha256_file, sha256_text
from regft_core.tracking.flatten import parameters, regulariser_names
from regft_core.tracking.records import CellLike, CellRecord, ReportRecord, RunRecord
from regft_core.tracking.scores import cell_scores, evaluation_scores, run_scores

#: Digits of a digest that are kept; enough to tell the contents of one run apart.
DIGEST = 16


def read_grid(root: Path, cells: Iterable[CellLike], seeds: Sequence[int]) -> list[CellRecord]:
    """Return the records of all cells that have been run; cells without files are left out.

    Raises:
        StoreError: a file is there and cannot be read.
    """
    report_file = root / "reports" / "results.json"
    report = read_json(report_file) if report_file.is_file() else {}
    exports, seen = read_exports(root), read_contamination(root)
    found = (_read_cell(root, cell, seeds, report, exports, seen) for cell in cells)
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
    root: Path,
    cell: CellLike,
    seeds: Sequence[int],
    report: Mapping[str, Any],
    exports: Mapping[str, str],
    seen: Contamination,
) -> CellRecord | None:
    place = cell.directory
    folders = {kind: root / "work" / kind / place for kind in ("search", "finetune", "evaluate")}
    manifests = {
        kind: read_json(folders[kind] / "manifest.json")
        for kind in ("search", "finetune")
        if (folders[kind] / "manifest.json").is_file()
    }
    if not manifests:
        return None
    manifest = manifests.get("finetune") or manifests["search"]
    result_file = folders["evaluate"] / "result.json"
    result = read_json(result_file) if result_file.is_file() else None
    method, phases = manifest["method"], ", ".join(manifest["phases"])
    name = f"{cell.method} {cell.task}-{cell.size}"
    tags = {
        "method": cell.method,
        "task": cell.task,
        "size": str(cell.size),
        "phases": phases,
        "regularisers": ", ".join(regulariser_names(manifest)) or "none",
        "model": str(manifest["model"]["name"]),
    }
    if method.get("control_for"):
        tags["control_for"] = ", ".join(method["control_for"])
        tags["differs_by"] = method.get("differs_by", "")
    if result is not None and result.get("primary"):
        tags["primary"] = result["primary"]
    if manifest.get("reads_encoder", True):
        judged = [name for run in (result or {}).get("runs", ()) for name in run["sets"] if name != "dev"]
        if found := seen.of(tags["model"], [cell.task, *judged]):
            tags["contaminated"] = "; ".join(f"{name}: {what}" for name, what in found.items())
    params = parameters(cell, manifest)
    config = {name: value for name, value in manifest.items() if name not in ("runs", "phase")}
    subsample_file = root / "work" / "subsamples" / cell.task / str(cell.size) / "manifest.json"
    subsample = read_json(subsample_file) if subsample_file.is_file() else None
    base = _Base(
        root,
        f"{cell.method}/{cell.task}-{cell.size}",
        name,
        tags,
        params,
        config,
        folders,
        manifests,
        result,
        {path.stem: read_json(path) for path in sorted((folders["evaluate"] / "evaluations").glob("*.json"))},
        subsample,
        exports,
        {kind: _lines(folders[kind] / "curves.csv") for kind in manifests},
        {kind: _lines(folders[kind] / "method_metrics.csv") for kind in manifests},
    )
    runs = tuple(run for seed in seeds if (run := _read_run(base, seed)) is not None)
    if not runs:
        return None
    scores = cell_scores(runs, report.get(f"{cell.task}-{cell.size}", {}).get(cell.method, {}))
    outcomes = {"ok" if run.ok else "failed" for run in runs}
    tags["status"] = outcomes.pop() if len(outcomes) == 1 else "partly failed"
    return CellRecord(base.cell, name, tags, params, scores, config, runs)


@dataclass(frozen=True)
class _Base:
    """What the seeds of a cell share."""

    root: Path
    cell: str
    name: str
    tags: Mapping[str, str]
    params: Mapping[str, str]
    config: Mapping[str, Any]
    folders: Mapping[str, Path]
    manifests: Mapping[str, Mapping[str, Any]]
    result: Mapping[str, Any] | None
    evaluations: Mapping[str, Mapping[str, Any]]
    subsample: Mapping[str, Any] | None
    exports: Mapping[str, str]
    #: Stage -> seed -> rows.
    curves: Mapping[str, Mapping[str, Sequence[str]]]
    diagnostics: Mapping[str, Mapping[str, Sequence[str]]]


def _read_run(base: _Base, seed: int) -> RunRecord | None:
    found = {kind: run for kind in base.manifests if (run := _of_seed(base.manifests[kind], seed)) is not None}
    if not found:
        return None
    main = found.get("finetune") or found["search"]
    # An evaluation of another key belongs to an earlier run: evaluate has not caught up.
    evaluated = _of_seed(base.result, seed)
    if evaluated is not None and evaluated["key"] != main["key"]:
        evaluated = None
    kinds = [kind for kind in ("search", "finetune") if kind in found]
    curves = tuple(line for kind in kinds for line in base.curves[kind].get(str(seed), ()))
    diagnostics = tuple(line for kind in kinds for line in base.diagnostics[kind].get(str(seed), ()))
    folder = base.folders["evaluate"] / "predictions" / f"seed-{seed}"
    predictions = tuple(sorted(folder.glob("*.jsonl"))) if evaluated is not None else ()
    failures = [run for run in (*found.values(), evaluated) if run is not None and run["status"] != "ok"]
    tags = dict(base.tags) | {"seed": str(seed), "status": "failed" if failures else "ok"}
    if failures:
        tags["error"] = str(failures[-1].get("error") or "unknown")[:5000]
    if main.get("variant"):
        tags["variant"] = main["variant"]
    if main.get("degraded"):
        tags["degraded"] = "; ".join(main["degraded"])
    if main.get("environment"):
        here = main["environment"]
        tags["device"] = here["device"]
        tags["environment"] = f"{here['name']}, {here['threads']} threads"
    collapsed = {name: how for name, how in ((evaluated or {}).get("collapsed") or {}).items() if how}
    if collapsed:
        tags["collapsed"] = ", ".join(f"{name}: {how}" for name, how in collapsed.items())
    if main["key"] in base.exports:
        tags["regft.export"] = base.exports[main["key"]]
    search_seconds = float(((found.get("search") or {}).get("cost") or {}).get("train_seconds") or 0.0)
    seconds = search_seconds + float((found.get("finetune") or {}).get("seconds") or 0.0)
    end = int(max((base.folders[kind] / "manifest.json").stat().st_mtime for kind in kinds) * 1000)
    digests = [canonical_json(found), *curves, *diagnostics]
    scored = [canonical_json(evaluated), *(f"{p.name} {sha256_file(p)}" for p in predictions)] if evaluated else []
    extra = _evaluations(base, seed) if evaluated is not None else {}
    return RunRecord(
        cell=base.cell,
        seed=seed,
        key=main["key"],
        name=f"seed {seed} of {base.name}",
        ok=not failures,
        training=_digest(*digests),
        evaluation=_digest(*scored) if scored else "",
        tags=tags,
        params=dict(base.params) | {"seed": str(seed)},
        curves=curves,
        diagnostics=diagnostics,
        scores=run_scores(main, evaluated, (base.result or {}).get("primary")) | evaluation_scores(extra),
        start=end - int(seconds * 1000),
        end=end,
        search_seconds=search_seconds,
        config=base.config,
        record={"training": found, "evaluation": evaluated},
        predictions=predictions,
        dataset=_dataset(base, seed),
        evaluations=extra,
    )


def _evaluations(base: _Base, seed: int) -> dict[str, dict[str, Any]]:
    """What each evaluation beyond the scores found about the run of one seed."""
    found = {name: _of_seed(content, seed) for name, content in base.evaluations.items()}
    return {name: finding for name, finding in found.items() if finding is not None}


def _of_seed(document: Mapping[str, Any] | None, seed: int) -> dict[str, Any] | None:
    runs = document["runs"] if document else ()
    return next((run for run in runs if run["seed"] == seed), None)


def _lines(path: Path) -> dict[str, list[str]]:
    """Seed -> its rows; the columns hold names and numbers, so no field is ever quoted."""
    found: dict[str, list[str]] = {}
    if path.is_file():
        for row in path.read_text(encoding="utf-8").splitlines()[1:]:
            found.setdefault(row.partition(",")[0], []).append(row)
    return found


def _dataset(base: _Base, seed: int) -> tuple[str, str, str] | None:
    described = ((base.subsample or {}).get("seeds") or {}).get(str(seed))
    if not described or base.subsample is None:
        return None
    profile = {"rows": base.subsample.get("n"), "seed": seed, "label_counts": described.get("label_counts")}
    # MLflow keeps 36 characters of a digest.
    return f"{base.tags['task']}-{base.tags['size']}", described["sha256"][:32], canonical_json(profile)


def _digest(*parts: str) -> str:
    return hashlib.sha256("\0".join(parts).encode()).hexdigest()[:DIGEST]
