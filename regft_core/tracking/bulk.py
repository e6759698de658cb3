"""Writes whole new MLflow runs, many in one transaction.

MLflow's client takes five calls for a run (create, datasets, values, status, files), each with look-ups of its own,
and about 50 ms. A mirror knows everything about a run before it writes it, so the rows are inserted as they are.
Where the tables are not the known ones, or a value is one that MLflow would cut or refuse, ``Bulk`` says so and the
client is used.

Every row of a run lies in another corner of MLflow's tables, which are sorted by the names of values: written run by
run, each costs a rewrite of hundreds of pages. So runs are collected, and each transaction has only complete ones.
"""

from __future__ import annotations

import math
import re
import sys
import uuid
from collections.abc import Mapping, Sequence
from typing import Any

from regft_core.tracking.records import Point
from regft_core.tracking.tables import Tables

_KEY = re.compile(r"[\w.\- :/]{1,250}")
#: Longer ones are cut or refused by MLflow, which may do it by itself.
_PARAM_CHARACTERS, _TAG_CHARACTERS = 6000, 8000
#: Runs in one transaction.
_TOGETHER = 200


class Bulk:
    """Inserts runs into one experiment.

    Args:
        tables: None when they are not the known ones.
        location: address of the experiment's artifacts.
    """

    def __init__(self, tables: Tables | None, experiment_id: str, location: str) -> None:
        self.tables, self.experiment_id, self.location = tables, experiment_id, location
        self._datasets: dict[tuple[str, str], str] = {}
        #: Names that were found to be such as MLflow takes.
        self._fine: set[str] = set()
        #: Rows of the runs that are not written yet, by table.
        self._waiting: dict[str, list[dict[str, Any]]] = {}

    def takes(self, tags: Mapping[str, str], params: Mapping[str, str], metrics: Sequence[Point]) -> bool:
        """Whether all values are such that MLflow would store them as they are."""
        keys = {*tags, *params, *(metric.name for metric in metrics)} - self._fine
        if self.tables is None or not all(_KEY.fullmatch(key) for key in keys):
            return False
        self._fine |= keys
        return all(len(value) <= _PARAM_CHARACTERS for value in params.values()) and all(
            len(value) <= _TAG_CHARACTERS for value in tags.values()
        )

    def create(
        self,
        run_id: str,
        name: str,
        start: int,
        end: int,
        status: str,
        tags: Mapping[str, str],
        params: Mapping[str, str],
        metrics: Sequence[Point],
        dataset: tuple[str, str, str, str] | None,
    ) -> None:
        """Insert a finished run with all that belongs to it; ``dataset``: name, digest, source, profile.

        It is in the database after the next ``flush`` at the latest. Raises ``sqlite3.Error``.
        """
        run = {
            "run_uuid": run_id,
            "name": name,
            "artifact_uri": f"{self.location}/{run_id}/artifacts",
            "experiment_id": int(self.experiment_id),
            "source_type": "UNKNOWN",
            "source_name": "",
            "entry_point_name": "",
            "user_id": "unknown",
            "status": status,
            "start_time": start,
            "end_time": end,
            "source_version": "",
            "lifecycle_stage": "active",
        }
        rows: dict[str, list[dict[str, Any]]] = {"runs": [run]}
        named = {**tags, "mlflow.runName": name}
        rows["tags"] = [{"run_uuid": run_id, "key": key, "value": value} for key, value in named.items()]
        rows["params"] = [{"run_uuid": run_id, "key": key, "value": value} for key, value in params.items()]
        points = {tuple(point.values()): point for point in (_point(metric) for metric in metrics)}
        latest: dict[str, dict[str, Any]] = {}
        for point in points.values():
            point["run_uuid"] = run_id
            before = latest.get(point["key"])
            if before is None or _moment(point) > _moment(before):
                latest[point["key"]] = point
        rows["metrics"], rows["latest_metrics"] = list(points.values()), list(latest.values())
        if dataset is not None:
            self._add_dataset(rows, run_id, *dataset)
        for table, values in rows.items():
            self._waiting.setdefault(table, []).extend(values)
        if len(self._waiting["runs"]) >= _TOGETHER:
            self.flush()

    def flush(self) -> None:
        """Write the runs that are not written yet; raises ``sqlite3.Error``."""
        if self._waiting and self.tables is not None:
            self.tables.insert(self._waiting)
            self._waiting = {}

    def _add_dataset(
        self, rows: dict[str, list[dict[str, Any]]], run_id: str, name: str, digest: str, source: str, profile: str
    ) -> None:
        assert self.tables is not None
        if (name, digest) not in self._datasets:
            known = self.tables.dataset(self.experiment_id, name, digest)
            self._datasets[name, digest] = uuid.uuid4().hex if known is None else known
            if known is None:
                own = {"dataset_uuid": self._datasets[name, digest], "experiment_id": int(self.experiment_id)}
                own |= {"name": name, "digest": digest, "dataset_source_type": "local", "dataset_source": source}
                rows["datasets"] = [{**own, "dataset_profile": profile}]
        edge = uuid.uuid4().hex
        rows["inputs"] = [
            {
                "input_uuid": edge,
                "source_type": "DATASET",
                "source_id": self._datasets[name, digest],
                "destination_type": "RUN",
                "destination_id": run_id,
                "step": 0,
            }
        ]
        rows["input_tags"] = [{"input_uuid": edge, "name": "mlflow.data.context", "value": "training"}]


def _point(metric: Point) -> dict[str, Any]:
    """A metric as MLflow stores it: NaN as a mark, infinities as the largest number."""
    value, nan = float(metric.value), math.isnan(metric.value)
    if math.isinf(value):
        value = math.copysign(sys.float_info.max, value)
    own = {"key": metric.name, "value": 0.0 if nan else value, "is_nan": nan}
    return {**own, "timestamp": metric.time, "step": metric.step}


def _moment(point: Mapping[str, Any]) -> tuple[int, int, float]:
    """Of two values of a metric, MLflow calls the one with the larger moment the latest."""
    return point["step"], point["timestamp"], point["value"]
