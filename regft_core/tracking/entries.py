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
from regft_core.runs.records import MARK, Finding, RunRecord
from regft_core.runs.work import Work
from regft_core.settings.files import RESULTS
from regft_core.settings.grid import Cell
from regft_core.settings.papers.contamination import read_contamination
from regft_core.settings.run_config import of_seed, yaml_text
from regft_core.tracking.artifacts import HANDED, KEPT, WEIGHTS, soup_table, tensor_artifacts, trials_table
from regft_core.tracking.numbers import (
    LONGEST,
    Curve,
    Dataset,
    Point,
    drawn_rows,
    evaluated_sets,
    parameters,
    read_curves,
    scores_of,
)

if TYPE_CHECKING:
    from matplotlib.figure import Figure


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
        scores: metric -> its value now. ``points``: curves, which never change.
        evaluation: digest of what judged the run; empty before that.
        files: artifact -> its content, or the file with it. ``judged`` are those that the evaluation wrote.
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
    evaluations = {run.seed: run for run in (result.runs if result else ())}
    searched = work.search(cell).runs if work.manifest_file("search", cell).is_file() else ()
    searches, findings = {run.seed: run for run in searched}, work.findings(cell)
    sets = list(dict.fromkeys(name for run in evaluations.values() for name in run.sets))
    primary = result.primary if result else ""
    tags = {
        **{"method": cell.method, "task": cell.task, "size": str(cell.size), "primary": primary},
        MARK: reported.get(MARK) or "",
        "control_for": ", ".join(manifest.method.get("control_for") or ()),
        "differs_by": manifest.method.get("differs_by") or "",
        "contaminated": "",
    }
    if manifest.reads_encoder:
        seen = read_contamination(work.root).of(
            manifest.model.name if manifest.model else "none", [cell.task, *(name for name in sets if name != "dev")]
        )
        tags["contaminated"] = "; ".join(f"{name}: {what}" for name, what in seen.items())
    shared = Entry(
        kind="run",
        identity=f"{cell.method}/{folder}",
        name=f"{cell.method} {folder}",
        start=0,
        end=int(work.manifest_file("finetune", cell).stat().st_mtime * 1000),
        params=parameters(cell, manifest.settings),
        tags=tags,
        files={"config.yaml": manifest.config} if manifest.config else {},
    )
    records = {run.seed: run for run in manifest.runs}
    curves = read_curves(work, cell, [records[seed] for seed in seeds if seed in records])
    runs = [
        _run(work, cell, shared, run, searches.get(run.seed), evaluations.get(run.seed), findings,
             curves[run.seed], store)
        for run in (records[seed] for seed in seeds if seed in records)
    ]  # fmt: skip
    if not runs:
        return shared
    states = {run.tags["status"] for run in runs}
    own = reported.get(folder, {}).get(cell.method, {})
    scores = _means(runs, own)
    current = f"dev.{primary}.low" in scores  # else the report is about other runs
    words = {
        role: own.get(role) or "" if current else ""
        for role in ("verdict_reference", "verdict_control", "verdict_replacement")
    }
    low = ", ".join(own.get("no_better_than_constant") or ()) if current else ""
    status = states.pop() if len(states) == 1 else "partly failed"
    return replace(
        shared,
        kind="cell",
        ok=status != "failed",
        start=min(run.start for run in runs),
        keys={seed: key for run in runs for seed, key in run.keys.items()},
        tags={**tags, **words, "no_better_than_constant": low, "status": status},
        scores=scores,
        datasets=list(evaluated_sets(work, cell, ["train", *sets])),
        nested=runs,
    )


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


def _run(
    work: Work, cell: Cell, shared: Entry, run: RunRecord, searched: RunRecord | None,
    evaluation: RunRecord | None, findings: Mapping[str, Finding],
    curves: Mapping[str, Curve], store: Path | None,
) -> Entry:  # fmt: skip
    if evaluation is not None and evaluation.key != run.key:
        evaluation = None  # of an earlier run: the stage has not caught up
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
        "seed": str(run.seed),
        "status": "failed" if failures else "ok",
        "error": (failures[-1].error or "unknown")[:LONGEST] if failures else "",
        "variant": run.variant or "",
        "degraded": "; ".join(run.degraded),
        "environment": ", ".join(f"{key} {value}" for key, value in sorted((run.environment or {}).items())),
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
        scores=scores_of(run, evaluation, shared.tags["primary"]) | scalars,
        evaluation=sha256_text("\n".join(digests)) if evaluation else "",
        files=files,
        judged=judged,
        datasets=[*drawn_rows(work, cell, run.seed), *judged_on],
        stored=(_stored(store, run.key), (KEPT,)) if store else None,
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
        numbers = {f"cost.{name}": value for name, value in (result.get("cost") or {}).items()}
        numbers |= {name: result.get(name) for name in ("steps", "seconds", "final_loss")}
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
            tags={**run.tags, "phase": label, "status": result.get("status", "ok"), "error": result.get("error") or ""},
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
