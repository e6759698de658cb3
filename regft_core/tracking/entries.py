"""Entries for MLflow, made of the files under ``work/`` and ``reports/``. Nothing here imports MLflow.

Only files are read, so a cell that DVC restored from its cache looks the same as one that was trained here.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pandas as pd

from regft_core.disk.canonical import canonical_json, sha256_file, sha256_text
from regft_core.disk.reading import read_json
from regft_core.report.formatting import as_shown
from regft_core.runs.environment import describe_environment
from regft_core.runs.records import MARK, Finding, RunRecord
from regft_core.runs.work import Work
from regft_core.settings.files import RESULTS
from regft_core.settings.grid import Cell
from regft_core.settings.run_config import of_seed, yaml_text
from regft_core.tracking.numbers import (
    HANDED,
    KEPT,
    LONGEST,
    WEIGHTS,
    Curve,
    Dataset,
    Point,
    costs_of,
    drawn_rows,
    evaluated_sets,
    parameters,
    read_curves,
    scores_of,
    soup_table,
    tensor_artifacts,
    trials_table,
)

if TYPE_CHECKING:
    from matplotlib.figure import Figure


VERDICTS = ("verdict_reference", "verdict_control", "verdict_replacement")


@dataclass(frozen=True)
class Entry:
    """One run in MLflow: of a cell, of a seed (nested in its cell), of a phase (nested in its seed), or of the report.

    Attributes:
        kind: ``cell``, ``run``, ``phase`` or ``report``.
        identity: of a run its cell, seed and key; of a phase that of its run, its name and key; of the report the
            digest of its files; of a cell its name.
        keys: seed -> key, of a run its own alone. A cell with another key for one of its seeds is another run.
        params: every setting by its path; what the comparison of two runs is made of.
        tags: an empty one says that there is nothing (any more).
        scores: metric -> its value now. ``points``: curves, which never change; of a cell those of its first seed.
        evaluation: digest of what evaluated the run, or of the report's figures of a cell; empty before that.
        files: artifact -> its content, or the file with it. ``judged`` are those that the evaluation, or report, wrote.
        stored: folder in the run store whose tensors are summarised when the run is first logged; the names of these.
        nested: entries of the runs below it.
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
    files: Mapping[str, str | Path | pd.DataFrame] = field(default_factory=dict)
    judged: Mapping[str, Path | pd.DataFrame] = field(default_factory=dict)
    datasets: Sequence[Dataset] = ()
    stored: tuple[Path, Sequence[str]] | None = None
    nested: Sequence[Entry] = ()

    def first_files(self) -> dict[str, str | Path | pd.DataFrame | Figure]:
        """Return what is written when the run is first logged."""
        return {**self.files, **self.judged, **(tensor_artifacts(*self.stored) if self.stored else {})}


def read_grid(root: Path, cells: Iterable[Cell], seeds: Sequence[int], store: Path | None = None) -> list[Entry]:
    """The entry of each cell that was trained; those of its seeds, and of their phases, are nested in it.

    Args:
        store: the run store, for what only it has of a phase: cost, and tensors.

    Raises DataError where a file of ``work/`` is not what it should be, StoreError for the report's numbers.
    """
    reported = read_json(root / RESULTS, dict) if (root / RESULTS).is_file() else {}
    work = Work(root)
    trained = [cell for cell in cells if work.manifest_file("finetune", cell).is_file()]
    entries = [_cell(work, cell, seeds, reported, store) for cell in trained]
    return [entry for entry in entries if entry.nested]


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


def _cell(work: Work, cell: Cell, seeds: Sequence[int], reported: Mapping[str, Any], store: Path | None) -> Entry:
    manifest, folder = work.finetune(cell), f"{cell.task}-{cell.size}"
    result = work.evaluation(cell) if work.result_file(cell).is_file() else None
    recorded = {run.seed: run for run in manifest.runs}
    records = {seed: recorded[seed] for seed in seeds if seed in recorded}
    evaluations = {
        run.seed: run
        for run in (result.runs if result else ())
        if run.seed in records and run.key == records[run.seed].key  # else of an earlier run
    }
    searched = work.search(cell).runs if work.manifest_file("search", cell).is_file() else ()
    searches, findings = {run.seed: run for run in searched}, work.findings(cell)
    sets = list(dict.fromkeys(name for run in evaluations.values() for name in run.sets))
    primary = result.primary if result else ""
    shared = Entry(
        kind="run",
        identity=f"{cell.method}/{folder}",
        name=f"{cell.method} {folder}",
        start=0,
        end=int(work.manifest_file("finetune", cell).stat().st_mtime * 1000),
        params=parameters(cell, manifest.settings),
        tags={"primary": primary, MARK: reported.get(MARK) or ""},
        files={"config.yaml": manifest.config} if manifest.config else {},
    )
    curves = read_curves(work, cell, list(records.values()))
    runs = [
        _run(work, cell, shared, run, searches.get(seed), evaluations.get(seed), findings, curves[seed], store)
        for seed, run in records.items()
    ]
    if not runs:
        return shared
    states = {run.tags["status"] for run in runs}
    status = states.pop() if len(states) == 1 else "partly failed"
    evaluated = [run for seed, run in evaluations.items() if any(str(seed) in one.keys for one in runs if one.ok)]
    row = _row(reported.get(folder, {}).get(cell.method, {}), evaluated, primary)
    figures = sorted((work.root / "reports/figures" / folder).glob("*.svg")) if row.get("answers") else []
    return replace(
        shared,
        kind="cell",
        ok=status != "failed",
        start=min(run.start for run in runs),
        keys={seed: key for run in runs for seed, key in run.keys.items()},
        tags={
            **shared.tags,
            **{role: row.get(role) or "" for role in VERDICTS},
            "no_better_than_constant": ", ".join(row.get("no_better_than_constant") or ()),
            "status": status,
        },
        scores=_means(runs, scores_of(evaluated, primary), row, primary),
        points=next((run.points for run in runs if run.points), ()),
        evaluation=sha256_text("\n".join(map(sha256_file, figures))) if figures else "",
        judged={f"figures/{path.name}": path for path in figures},
        datasets=list(evaluated_sets(work, cell, ["train", *sets])),
        nested=runs,
    )


def _row(reported: Mapping[str, Any], evaluated: Sequence[RunRecord], primary: str) -> Mapping[str, Any]:
    """The report's numbers of a cell; nothing where the report is older than the results."""
    bounds = reported.get("dev", {}).get(primary, {})
    values = [run.sets["dev"].metrics[primary] for run in evaluated if "dev" in run.sets]
    same = values and bounds.get("n") == len(values) and abs(bounds["mean"] - sum(values) / len(values)) < 1e-9
    return reported if same else {}


def _means(
    runs: Sequence[Entry], scores: Mapping[str, float], row: Mapping[str, Any], primary: str
) -> dict[str, float]:
    """Scores, interval and costs over the seeds that did not fail; the numbers of failures where there are any."""
    good, bounds = [run for run in runs if run.ok], row.get("dev", {}).get(primary, {})
    sides = {side: bounds[side] for side in ("low", "high") if bounds.get(side) is not None}
    numbers = dict(list(scores.items())[:1]) | {f"score_{side}": as_shown(sides[side], primary) for side in sides}
    numbers |= scores
    for name in dict.fromkeys(name for run in good for name in run.scores if name not in scores):
        values = [run.scores[name] for run in good if name in run.scores]
        numbers[name] = float(f"{sum(values) / len(values):.6g}")
    if (measured := row.get("cost_ratio", {}).get("measured")) is not None:
        numbers["cost_measured"] = round(measured, 2)
    counts = {"failed_runs": len(runs) - len(good), "collapsed_runs": sum(bool(run.tags["collapsed"]) for run in good)}
    return numbers | {"seeds": float(len(good)), **{name: float(count) for name, count in counts.items() if count}}


def _run(
    work: Work, cell: Cell, shared: Entry, run: RunRecord, searched: RunRecord | None,
    evaluation: RunRecord | None, findings: Mapping[str, Finding],
    curves: Mapping[str, Curve], store: Path | None,
) -> Entry:  # fmt: skip
    failures = [one for one in (searched, run, evaluation) if one is not None and not one.ok]
    found, judged = {}, dict[str, Path | pd.DataFrame]()
    if evaluation is not None:
        found = {name: one for name, finding in findings.items() for one in finding.runs if one.seed == run.seed}
        predictions = sorted(work.predictions_file(cell, run.seed, "*").parent.glob("*.jsonl"))
        judged = {f"predictions/{path.name}": path for path in predictions}
    told = canonical_json([evaluation and evaluation.plain(), {name: one.plain() for name, one in found.items()}])
    digests = [told, *(sha256_file(path) for path in judged.values() if isinstance(path, Path))]
    judged |= {
        f"{name}/{place}-{table}.json": pd.DataFrame(content.rows, columns=content.columns)
        for name, one in found.items()
        for place, tables in one.tables.items()
        for table, content in tables.items()
    }
    tags = {
        "status": "failed" if failures else "ok",
        "error": (failures[-1].error or "unknown")[:LONGEST] if failures else "",
        "variant": run.variant or "",
        "degraded": "; ".join(run.degraded),
        "environment": describe_environment(run.environment) if run.environment else "",
        "collapsed": (evaluation and evaluation.collapsed) or "",
    }
    judged_on = evaluated_sets(work, cell, evaluation.sets if evaluation else ())
    seconds = ((searched.cost.train_seconds if searched else None) or 0.0) + (run.seconds or 0.0)
    record = {"search": searched, "finetune": run, "evaluation": evaluation}
    scalars = {
        f"{name}.{place}.{key}": float(value)
        for name, one in found.items()
        for place, own in one.scalars.items()
        for key, value in own.items()
    }
    files: dict[str, str | Path | pd.DataFrame] = {
        **shared.files,
        "run.yaml": yaml_text({name: one.plain() for name, one in record.items() if one}),
    }
    tuned = {}
    if run.tuned is None:
        files |= {name: of_seed(str(config), run.seed) for name, config in shared.files.items()}
    else:  # whose trials may be chosen over all seeds
        files["trials.json"] = trials_table(run.tuned)
        tuned = {f"tuned.{name}": json.dumps(value) for name, value in run.tuned.values.items()}
    entry = replace(
        shared,
        identity=f"{shared.identity}/{run.seed}/{run.key}",
        name=f"seed {run.seed} of {shared.name}",
        ok=not failures,
        start=shared.end - int(seconds * 1000),
        keys={str(run.seed): run.key},
        params={**shared.params, **tuned, "seed": str(run.seed)},
        tags={**shared.tags, **tags},
        scores=scores_of([evaluation] if evaluation else [], shared.tags["primary"])
        | costs_of(run, evaluation)
        | scalars,
        evaluation=sha256_text("\n".join(digests)) if evaluation else "",
        files=files,
        judged=judged,
        datasets=[*drawn_rows(work, cell, run.seed), *judged_on],
        # Of a model that is solved, the parts are words and their weights: tensors that no figure explains.
        stored=(_stored(store, run.key), (KEPT,)) if store and run.steps else None,
    )
    phases = _phases(entry, run, curves, store)
    return replace(entry, points=_points(entry, curves.get("finetune", [])), nested=phases if len(phases) > 1 else ())


def _phases(run: Entry, record: RunRecord, curves: Mapping[str, Curve], store: Path | None) -> list[Entry]:
    """One entry for each phase that was trained, and for each member of a repeated one, in their order."""
    folders: dict[str, tuple[str, Path | None]] = {}
    for phase, key in record.keys.items():
        folder = _stored(store, key) if store else None
        members = read_json(folder / "identity.json", dict).get("members", ()) if folder and folder.is_dir() else ()
        folders |= {f"{phase}-{index}": (one, _stored(store, one)) for index, one in enumerate(members) if store}
        unstored = (name for name in curves if name.startswith(f"{phase}-") and name not in {*folders, *record.keys})
        folders |= dict.fromkeys(unstored, ("", None))
        folders[phase] = key, folder
    entries = []
    for label, (key, folder) in folders.items():
        phase = label if label in record.keys else label.rpartition("-")[0]
        result = read_json(folder / "result.json", dict) if folder and (folder / "result.json").is_file() else {}
        numbers = {name: result.get(name) for name in ("steps", "seconds")}
        cell = {name: value for name, value in run.params.items() if not name.startswith("phases.")}
        settings = {name: value for name, value in run.params.items() if name.startswith(f"phases.{phase}.")}
        entry = replace(
            run,
            kind="phase",
            identity=f"{run.identity}/{label}/{key}",
            name=f"{label} of {run.name}",
            start=run.end - int((result.get("seconds") or (run.end - run.start) / 1000) * 1000),
            ok=result.get("status", "ok") == "ok",
            params={**cell, **settings, "phase": label},
            tags={"phase": label, "status": result.get("status", "ok"), "error": result.get("error") or ""},
            scores={name: float(value) for name, value in numbers.items() if value is not None},
            evaluation="",
            files={"soup.json": soup_table(result["soup"])} if "soup" in result else {},
            judged={},
            datasets=(),
            # Weights of members, and of the last phase, are those of any training.
            stored=(folder, (HANDED, *((WEIGHTS,) if label == phase != "finetune" else ()))) if folder else None,
        )
        entries.append(replace(entry, points=_points(entry, curves.get(label, []))))
    return entries


def _stored(store: Path, key: str) -> Path:
    return store / "runs" / key[:2] / key


def _points(entry: Entry, curve: Curve) -> list[Point]:
    width = (entry.end - entry.start) / max([1, *(step for _, _, step in curve)])
    return [Point(name, value, step, entry.start + int(width * step)) for name, value, step in curve]
