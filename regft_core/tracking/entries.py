"""Entries for trackers, made of the files under ``work/`` and ``reports/``. Nothing here imports MLflow.

Only files are read, so a cell that DVC restored from its cache looks the same as one that was trained here.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pandas as pd

from regft_core.disk.canonical import canonical_json, sha256_file, sha256_text
from regft_core.disk.reading import read_json
from regft_core.report.formatting import as_shown
from regft_core.runs.environment import describe_environment
from regft_core.runs.records import MARK, RunRecord
from regft_core.runs.work import Work
from regft_core.settings.grid import Cell
from regft_core.settings.run_config import of_seed, yaml_text
from regft_core.settings.yaml_paths import RESULTS
from regft_core.tracking.numbers import (
    HANDED,
    KEPT,
    LONGEST,
    WEIGHTS,
    Curve,
    Dataset,
    Point,
    costs_of,
    datasets,
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
        identity: a tracker logs an entry once. Another key, evaluation, finding or mark, of a cell another seed or
            verdict, of the report another file make another entry.
        keys: seed -> key, of a run its own alone.
        params: every setting by its path; what the comparison of two runs is made of.
        scores: metric -> its value. ``points``: curves; of a cell those of its first seed.
        files: artifact -> its content, or the file with it.
        stored: folder in the run store whose tensors are summarised when the run is logged; the names of these.
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
    files: Mapping[str, str | Path | pd.DataFrame] = field(default_factory=dict)
    datasets: Sequence[Dataset] = ()
    stored: tuple[Path, Sequence[str]] | None = None
    nested: Sequence[Entry] = ()

    def artifacts(self) -> dict[str, str | Path | pd.DataFrame | Figure]:
        """Return the files, with tables and figures of the stored tensors."""
        return {**self.files, **(tensor_artifacts(*self.stored) if self.stored else {})}


def read_grid(root: Path, cells: Iterable[Cell], seeds: Sequence[int], store: Path | None = None) -> list[Entry]:
    """The entry of each cell that was trained; those of its seeds, and of their phases, are nested in it.

    Args:
        store: the run store, for what only it has of a phase: cost, and tensors.

    Raises DataError where a file of ``work/`` is not what it should be, StoreError for the report's numbers.
    """
    work, reported = Work(root), read_json(root / RESULTS, dict) if (root / RESULTS).is_file() else {}
    trained = [cell for cell in cells if work.manifest_file("finetune", cell).is_file()]
    entries = [_CellFiles(work, cell, seeds, store).entry(reported) for cell in trained]
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


def _digest(*content: Any) -> str:
    return sha256_text(canonical_json(content))[:16]


class _CellFiles:
    """The records of one cell, by seed."""

    def __init__(self, work: Work, cell: Cell, seeds: Sequence[int], store: Path | None) -> None:
        self.work, self.cell, self.store = work, cell, store
        self.manifest, self.findings = work.finetune(cell), work.findings(cell)
        recorded = {run.seed: run for run in self.manifest.runs}
        self.runs = {seed: recorded[seed] for seed in seeds if seed in recorded}
        result = work.evaluation(cell) if work.result_file(cell).is_file() else None
        self.primary = result.primary if result else ""
        evaluated = {run.seed: run for run in (result.runs if result else ())}  # perhaps of an earlier run
        self.evaluations = {
            s: evaluated[s] for s, run in self.runs.items() if s in evaluated and evaluated[s].key == run.key
        }
        searched = work.search(cell).runs if work.manifest_file("search", cell).is_file() else ()
        self.searches = {run.seed: run for run in searched}
        self.curves = read_curves(work, cell, list(self.runs.values()))
        self.folder = f"{cell.task}-{cell.size}"
        self.params = parameters(cell, self.manifest.settings)
        self.end = int(work.manifest_file("finetune", cell).stat().st_mtime * 1000)

    def entry(self, reported: Mapping[str, Any]) -> Entry:
        """The entry of the cell with those of its seeds; without any the cell has no run of the grid."""
        mark = {"primary": self.primary, MARK: reported.get(MARK) or ""}
        runs = [self._run(seed, mark) for seed in self.runs]
        states = {run.tags["status"] for run in runs}
        status = states.pop() if len(states) == 1 else "partly failed"
        good = [run for run in runs if run.ok]
        evaluated = [run for seed, run in self.evaluations.items() if any(str(seed) in one.keys for one in good)]
        row = self._row(reported.get(self.folder, {}).get(self.cell.method, {}), evaluated)
        verdicts = {role: row.get(role) or "" for role in VERDICTS}
        verdicts["no_better_than_constant"] = ", ".join(row.get("no_better_than_constant") or ())
        bounds = self._bounds(row)
        figures = sorted((self.work.root / "reports/figures" / self.folder).glob("*.svg")) if row.get("answers") else []
        digest = _digest([run.identity for run in runs], self.params, mark, verdicts, bounds, len(figures))
        sets = dict.fromkeys(name for run in self.evaluations.values() for name in run.sets)
        return Entry(
            "cell",
            f"{self.cell.method}/{self.folder}/{digest}",
            f"{self.cell.method} {self.folder}",
            min((run.start for run in runs), default=0),
            self.end,
            status != "failed",
            {seed: key for run in runs for seed, key in run.keys.items()},
            self.params,
            {**mark, **verdicts, "status": status},
            self._means(runs, good, scores_of(evaluated, self.primary), bounds),
            next((run.points for run in runs if run.points), ()),
            {**self._config(), **{f"figures/{path.name}": path for path in figures}},
            list(datasets(self.work, self.cell, ["train", *sets])),
            nested=runs,
        )

    def _config(self) -> dict[str, str]:
        return {"config.yaml": self.manifest.config} if self.manifest.config else {}

    def _row(self, reported: Mapping[str, Any], evaluated: Sequence[RunRecord]) -> Mapping[str, Any]:
        """The report's numbers of the cell; nothing where the report is older than the results."""
        bounds = reported.get("dev", {}).get(self.primary, {})
        values = [run.sets["dev"].metrics[self.primary] for run in evaluated if "dev" in run.sets]
        same = values and bounds.get("n") == len(values) and abs(bounds["mean"] - sum(values) / len(values)) < 1e-9
        return reported if same else {}

    def _bounds(self, row: Mapping[str, Any]) -> dict[str, float]:
        """What the report alone knows: the interval of the score, and the measured cost beside plain fine-tuning."""
        interval, measured = row.get("dev", {}).get(self.primary, {}), row.get("cost_ratio", {}).get("measured")
        sides = {side: interval[side] for side in ("low", "high") if interval.get(side) is not None}
        bounds = {f"score_{side}": as_shown(value, self.primary) for side, value in sides.items()}
        return bounds | ({} if measured is None else {"cost_measured": round(measured, 2)})

    def _means(
        self, runs: Sequence[Entry], good: Sequence[Entry], scores: Mapping[str, float], bounds: Mapping[str, float]
    ) -> dict[str, float]:
        """Scores, interval and costs over the seeds that did not fail; the numbers of failures where there are any."""
        numbers = dict(list(scores.items())[:1]) | dict(bounds) | dict(scores)
        for name in dict.fromkeys(name for run in good for name in run.scores if name not in scores):
            values = [run.scores[name] for run in good if name in run.scores]
            numbers[name] = float(f"{sum(values) / len(values):.6g}")
        collapsed = sum(bool(run.tags["collapsed"]) for run in good)
        counts = {"failed_runs": len(runs) - len(good), "collapsed_runs": collapsed}
        return numbers | {"seeds": float(len(good)), **{name: float(count) for name, count in counts.items() if count}}

    def _run(self, seed: int, mark: Mapping[str, str]) -> Entry:
        run, searched, evaluation = self.runs[seed], self.searches.get(seed), self.evaluations.get(seed)
        failures = [record for record in (searched, run, evaluation) if record is not None and not record.ok]
        found = {
            name: one
            for name, finding in self.findings.items()
            for one in finding.runs  # perhaps of an earlier run
            if (one.seed, one.key) == (seed, run.key)
        }
        scalars = {
            f"{name}.{place}.{key}": float(value)
            for name, one in found.items()
            for place, numbers in one.scalars.items()
            for key, value in numbers.items()
        }
        tags = {
            "status": "failed" if failures else "ok",
            "error": (failures[-1].error or "unknown")[:LONGEST] if failures else "",
            "variant": run.variant or "",
            "degraded": "; ".join(run.degraded),
            "environment": describe_environment(run.environment) if run.environment else "",
            "collapsed": (evaluation and evaluation.collapsed) or "",
        }
        params, files = {**self.params, "seed": str(seed)}, dict[str, str | Path | pd.DataFrame]()
        if run.tuned is None:
            files |= {name: of_seed(config, seed) for name, config in self._config().items()}
        else:  # whose trials may be chosen over all seeds
            files |= {**self._config(), "trials.json": trials_table(run.tuned)}
            params |= {f"tuned.{name}": json.dumps(value) for name, value in run.tuned.values.items()}
        records = {"search": searched, "finetune": run, "evaluation": evaluation}
        files["run.yaml"] = yaml_text({name: record.plain() for name, record in records.items() if record})
        if evaluation is not None:
            predictions = sorted(self.work.predictions_file(self.cell, seed, "*").parent.glob("*.jsonl"))
            files |= {f"predictions/{path.name}": path for path in predictions}
        files |= {
            f"{name}/{place}-{table}.json": pd.DataFrame(content.rows, columns=content.columns)
            for name, one in found.items()
            for place, tables in one.tables.items()
            for table, content in tables.items()
        }
        scores = scores_of([evaluation] if evaluation else [], self.primary)
        seconds = ((searched.cost.train_seconds if searched else None) or 0.0) + (run.seconds or 0.0)
        plain = {name: one.plain() | {"environment": None} for name, one in found.items()}
        place = f"{self.cell.method}/{self.folder}/{seed}/{run.key}"
        entry = Entry(
            "run",
            f"{place}/{_digest(params, mark, tags, scores, plain)}",
            f"seed {seed} of {self.cell.method} {self.folder}",
            self.end - int(seconds * 1000),
            self.end,
            not failures,
            {str(seed): run.key},
            params,
            {**mark, **tags},
            scores | costs_of(run, evaluation) | scalars,
            files=files,
            datasets=list(datasets(self.work, self.cell, evaluation.sets if evaluation else (), seed)),
            # Of a model that is solved, the parts are words and their weights: tensors that no figure explains.
            stored=(self._stored(run.key), (KEPT,)) if self.store and run.steps else None,
        )
        phases = list(self._phases(entry, place, run))
        points = _points(entry, self.curves[seed].get("finetune", []))
        return replace(entry, points=points, nested=phases if len(phases) > 1 else ())

    def _stored(self, key: str) -> Path:
        assert self.store is not None
        return self.store / "runs" / key[:2] / key

    def _phases(self, run: Entry, place: str, record: RunRecord) -> Iterator[Entry]:
        """One entry for each phase that was trained, and for each member of a repeated one, in their order."""
        curves, keys = self.curves[record.seed], dict[str, str]()
        for phase, key in record.keys.items():
            identity = self._stored(key) / "identity.json" if self.store else None
            members = read_json(identity, dict).get("members", ()) if identity and identity.is_file() else ()
            keys |= {f"{phase}-{index}": member for index, member in enumerate(members)}
            keys |= {
                name: keys.get(name, "") for name in curves if name.startswith(f"{phase}-") and name not in record.keys
            }
            keys[phase] = key
        for label, key in keys.items():
            phase = label if label in record.keys else label.rpartition("-")[0]
            folder = self._stored(key) if self.store and key else None
            result = read_json(folder / "result.json", dict) if folder and (folder / "result.json").is_file() else {}
            state, seconds = result.get("status", "ok"), result.get("seconds") or (run.end - run.start) / 1000
            own = {
                n: v for n, v in run.params.items() if not n.startswith("phases.") or n.startswith(f"phases.{phase}.")
            }
            # Weights of members, and of the last phase, are those of any training.
            tensors = (HANDED, *((WEIGHTS,) if label == phase != "finetune" else ()))
            entry = Entry(
                "phase",
                f"{place}/{label}/{key}",
                f"{label} of {run.name}",
                run.end - int(seconds * 1000),
                run.end,
                state == "ok",
                run.keys,
                {**own, "phase": label},
                {"phase": label, "status": state, "error": result.get("error") or ""},
                {name: float(result[name]) for name in ("steps", "seconds") if result.get(name) is not None},
                files={"soup.json": soup_table(result["soup"])} if "soup" in result else {},
                stored=(folder, tensors) if folder else None,
            )
            yield replace(entry, points=_points(entry, curves.get(label, [])))


def _points(entry: Entry, curve: Curve) -> list[Point]:
    width = (entry.end - entry.start) / max([1, *(step for _, _, step in curve)])
    return [Point(name, value, step, entry.start + int(width * step)) for name, value, step in curve]
