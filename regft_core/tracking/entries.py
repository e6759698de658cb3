"""Entries for trackers, made of the files under ``work/`` and ``reports/`` alone. Nothing here imports MLflow."""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, TypeVar

import pandas as pd

from regft_core.disk.canonical import sha256_file, sha256_json, sha256_text
from regft_core.disk.reading import read_json
from regft_core.report.formatting import as_shown, same_score
from regft_core.runs.records import MARK, FindingRecord, RunRecord
from regft_core.runs.work import Work
from regft_core.serve.card import current
from regft_core.settings.document import yaml_text
from regft_core.settings.project import Cell
from regft_core.settings.run_config import of_seed
from regft_core.settings.yaml_paths import RESULTS
from regft_core.tracking.numbers import (
    LONGEST,
    Dataset,
    Point,
    costs_of,
    datasets,
    parameters,
    read_curves,
    scores_of,
    soup_table,
    trials_table,
)

VERDICTS = ("verdict_reference", "verdict_control", "verdict_replacement")
R = TypeVar("R", RunRecord, FindingRecord)


@dataclass(frozen=True)
class Entry:
    """One run in MLflow: of a cell, of a seed (nested in its cell), of a phase (nested in its seed), or of the report.

    Attributes:
        identity: of its content; a tracker logs an entry once.
        keys: seed -> key, of a run its own alone.
        params: every setting by its path.
        scores, points: metric -> its value; its values by step.
        files: artifact -> its content, or the file with it.
        tensors: files of the run store that are summarised when the run is logged.
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
    tensors: Sequence[Path] = ()
    nested: Sequence[Entry] = ()


def read_grid(root: Path, cells: Iterable[Cell], seeds: Sequence[int], store: Path) -> list[Entry]:
    """Return the entry of each cell that was trained; those of its seeds, and of their phases, are nested in it.

    ``store``: the run store. DataError or StoreError for a file that is not what it should be.
    """
    work, reported = Work(root), read_json(root / RESULTS, dict) if (root / RESULTS).is_file() else {}
    trained = [cell for cell in cells if work.result_file("finetune", cell).is_file()]
    # Verdicts and intervals of a report from before an edit, of the cell or of what it is compared with, are none.
    rows, mark = current(root, reported, trained), reported.get(MARK) or ""
    entries = [_CellFiles(work, cell, seeds, store, mark).entry(rows[cell]) for cell in trained]
    return [entry for entry in entries if entry.nested]


def read_report(root: Path) -> list[Entry]:
    """The report under ``reports/``; empty before it was written."""
    folder = root / "reports"
    page = folder / "report.html"
    if not page.is_file():
        return []
    paths = (path.relative_to(folder) for path in sorted(folder.rglob("*")) if path.is_file())
    files = {path.as_posix(): folder / path for path in paths if not any(part.startswith(".") for part in path.parts)}
    digest = sha256_text("\n".join(f"{name} {sha256_file(path)}" for name, path in files.items()))
    time = int(page.stat().st_mtime * 1000)
    return [Entry("report", f"report/{digest}", "report", time, time, files=files)]


def _digest(*content: Any) -> str:
    return sha256_json(content)[:16]


class _CellFiles:
    """The records of one cell, by seed; evaluations and findings may be of an earlier run, and are left out then."""

    def __init__(self, work: Work, cell: Cell, seeds: Sequence[int], store: Path, mark: str) -> None:
        self.work, self.cell, self.store, self.folder = work, cell, store, f"{cell.task}-{cell.size}"
        self.manifest = work.finetune(cell)
        recorded = {run.seed: run for run in self.manifest.runs}
        self.runs = {seed: recorded[seed] for seed in seeds if seed in recorded}
        result = work.evaluation(cell) if work.result_file("evaluate", cell).is_file() else None
        self.evaluations = self._current(result.runs if result else ())
        self.findings = {name: self._current(found.runs) for name, found in work.findings(cell).items()}
        searched = work.search(cell).runs if work.result_file("search", cell).is_file() else ()
        # A search may have run again since.
        self.searches = {r.seed: r for r in searched if r.seed in self.runs and r.phases == self.runs[r.seed].phases}
        self.curves = read_curves(work, cell, list(self.runs.values()), self.searches)
        self.params = parameters(cell, self.manifest.settings)
        self.config = {"config.yaml": self.manifest.config} if self.manifest.config else {}
        self.primary = result.primary if result else ""
        self.mark = {"primary": self.primary, MARK: mark}
        self.end = int(work.result_file("finetune", cell).stat().st_mtime * 1000)

    def _current(self, records: Iterable[R]) -> dict[int, R]:
        return {one.seed: one for one in records if one.seed in self.runs and one.key == self.runs[one.seed].key}

    def entry(self, row: Mapping[str, Any]) -> Entry:
        """The entry of the cell, with those of its seeds (without any it has no run); ``row``: of it in the report."""
        runs = [self._run(seed) for seed in self.runs]
        states = {run.tags["status"] for run in runs}
        status = states.pop() if len(states) == 1 else "partly failed"
        good = [run for run in runs if run.ok]
        values = {name: [run.scores[name] for run in good if name in run.scores] for run in good for name in run.scores}
        means = {name: float(f"{sum(of) / len(of):.6g}") for name, of in values.items()} | {"seeds": float(len(good))}
        score = row.get("dev", {}).get(self.primary, {})
        # The same runs may have been evaluated anew.
        fresh = score.get("n") == means["seeds"] and "score" in means
        if not (fresh and same_score(score["mean"], means["score"], self.primary)):
            row = score = {}
        verdicts = {role: row.get(role) or "" for role in VERDICTS}
        verdicts["no_better_than_constant"] = ", ".join(row.get("no_better_than_constant") or ())
        sides = (side for side in ("low", "high") if score.get(side) is not None)
        bounds = {f"score_{side}": as_shown(score[side], self.primary) for side in sides}
        first = {name: means[name] for name in means if name == "score"}  # in the order of the run's page
        digest = _digest([run.identity for run in runs], self.params, self.mark, verdicts, bounds)
        return Entry(
            "cell",
            f"{self.cell.method}/{self.folder}/{digest}",
            f"{self.cell.method} {self.folder}",
            min((run.start for run in runs), default=0),
            self.end,
            status != "failed",
            {seed: key for run in runs for seed, key in run.keys.items()},
            self.params,
            {**self.mark, **verdicts, "status": status},
            first | bounds | means,
            files=self.config,
            nested=runs,
        )

    def _run(self, seed: int) -> Entry:
        run, searched, evaluation = self.runs[seed], self.searches.get(seed), self.evaluations.get(seed)
        failures = [record for record in (searched, run, evaluation) if record is not None and not record.ok]
        findings = {name: of[seed] for name, of in self.findings.items() if seed in of}
        tags = {
            **self.mark,
            "status": "failed" if failures else "ok",
            "error": (failures[-1].error or "unknown")[:LONGEST] if failures else "",
            **({"collapsed": evaluation.collapsed} if evaluation and evaluation.collapsed else {}),
        }
        params = {**self.params, "seed": str(seed)}
        records = {"search": searched, "finetune": run, "evaluation": evaluation}
        tuned = run.tuned is not None  # whose trials may be chosen over all seeds
        files: dict[str, str | Path | pd.DataFrame] = {
            name: config if tuned else of_seed(config, seed) for name, config in self.config.items()
        }
        if run.tuned is not None:
            files["trials.json"] = trials_table(run.tuned)
            params |= {f"tuned.{name}": json.dumps(value) for name, value in run.tuned.values.items()}
        files["run.yaml"] = yaml_text({name: record.plain() for name, record in records.items() if record})
        if evaluation is not None:
            predictions = sorted(self.work.predictions_file(self.cell, seed, "*").parent.glob("*.jsonl"))
            files |= {f"predictions/{path.name}": path for path in predictions}
        scores = scores_of(evaluation, self.primary) | costs_of(run, evaluation)
        for name, one in findings.items():
            for place, tables in one.tables.items():
                for table, content in tables.items():
                    files[f"{name}/{place}-{table}.json"] = pd.DataFrame(content.rows, columns=content.columns)
            for place, numbers in one.scalars.items():
                scores |= {f"{name}.{place}.{key}": float(value) for key, value in numbers.items()}
        seconds = ((searched.cost.train_seconds if searched else None) or 0.0) + (run.seconds or 0.0)
        plain = {name: one.plain() | {"environment": None} for name, one in findings.items()}
        place = f"{self.cell.method}/{self.folder}/{seed}/{run.key}"
        entry = Entry(
            "run",
            f"{place}/{_digest(params, tags, scores, plain)}",
            f"seed {seed} of {self.cell.method} {self.folder}",
            self.end - int(seconds * 1000),
            self.end,
            not failures,
            {str(seed): run.key},
            params,
            tags,
            scores,
            self.curves[seed].get("finetune", ()),
            files,
            list(datasets(self.work, self.cell, evaluation.sets if evaluation else (), seed)),
            # Of a model that is solved, the parts are words and their weights: tensors that no figure explains.
            [self._stored(run.key, "kept.safetensors")] if run.steps else (),
        )
        phases = list(self._phases(entry, place, run))
        return replace(entry, nested=phases if len(phases) > 1 else ())

    def _stored(self, key: str, name: str) -> Path:
        return self.store / "runs" / key[:2] / key / name

    def _phases(self, run: Entry, place: str, record: RunRecord) -> Iterator[Entry]:
        """One entry for each phase that was trained, and for each member of a repeated one, in their order."""

        def read(key: str, name: str) -> dict[str, Any]:
            path = self._stored(key, name)
            return read_json(path, dict) if path.is_file() else {}

        curves, keys = self.curves[record.seed], dict[str, str]()
        for phase, key in record.keys.items():
            logged = [name for name in curves if name.startswith(f"{phase}-") and name not in record.keys]
            members = read(key, "identity.json").get("members", ())
            keys |= dict.fromkeys(logged, "") | {f"{phase}-{index}": member for index, member in enumerate(members)}
            keys[phase] = key
        for label, key in keys.items():
            phase = label if label in record.keys else label.rpartition("-")[0]
            result, other = read(key, "result.json"), "phases."
            state, seconds = result.get("status", "ok"), result.get("seconds") or (run.end - run.start) / 1000
            params = {
                n: v for n, v in run.params.items() if not n.startswith(other) or n.startswith(f"{other}{phase}.")
            }
            yield Entry(
                "phase",
                f"{place}/{label}/{key}",
                f"{label} of {run.name}",
                run.end - int(seconds * 1000),
                run.end,
                state == "ok",
                run.keys,
                {**params, "phase": label},
                {"phase": label, "status": state, "error": result.get("error") or ""},
                {name: float(result[name]) for name in ("steps", "seconds") if result.get(name) is not None},
                curves.get(label, ()),
                {"soup.json": soup_table(result["soup"])} if "soup" in result else {},
                tensors=[self._stored(key, "state.safetensors")],
            )
