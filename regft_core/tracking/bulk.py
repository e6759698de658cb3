"""Writes a whole new MLflow run in one transaction.

MLflow's client takes five calls for a run (create, datasets, values, status, files), each with look-ups of its own,
and about 50 ms. A mirror knows everything about a run before it writes it, so the rows can be inserted as they are,
with MLflow's own tables. Where its tables are not the known ones, or a value is one that MLflow would cut or refuse,
``Bulk`` says so and the client is used.
"""

from __future__ import annotations

import math
import re
import sys
import uuid
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from mlflow import MlflowClient
    from mlflow.entities import Metric

_KEY = re.compile(r"[\w.\- :/]{1,250}")
#: Longer ones are cut or refused by MLflow, which may do it by itself.
_PARAM_CHARACTERS, _TAG_CHARACTERS = 6000, 8000
_TABLES = {
    "SqlRun": {"run_uuid", "name", "artifact_uri", "experiment_id", "source_type", "source_name", "entry_point_name"}
    | {"user_id", "status", "start_time", "end_time", "deleted_time", "source_version", "lifecycle_stage"},
    "SqlTag": {"key", "value", "run_uuid"},
    "SqlParam": {"key", "value", "run_uuid"},
    "SqlMetric": {"key", "value", "timestamp", "step", "is_nan", "run_uuid"},
    "SqlLatestMetric": {"key", "value", "timestamp", "step", "is_nan", "run_uuid"},
    "SqlDataset": {"dataset_uuid", "experiment_id", "name", "digest", "dataset_source_type", "dataset_source"}
    | {"dataset_schema", "dataset_profile"},
    "SqlInput": {"input_uuid", "source_type", "source_id", "destination_type", "destination_id", "step"},
    "SqlInputTag": {"input_uuid", "name", "value"},
}


class Bulk:
    """MLflow's tables of one open database; ``usable`` is false when they are not the known ones."""

    def __init__(self, client: MlflowClient, experiment_id: str) -> None:
        self.experiment_id = int(experiment_id)
        self.tables: dict[str, Any] = {}
        self._datasets: dict[tuple[str, str], str] = {}
        try:
            from mlflow.store.tracking.dbmodels import models

            self.session = client._tracking_client.store.ManagedSessionMaker
            self.location = client.get_experiment(experiment_id).artifact_location.rstrip("/")
            self.tables = {name: getattr(models, name).__table__ for name in _TABLES}
        except (ImportError, AttributeError):
            self.usable = False
        else:
            found = {name: {column.name for column in table.columns} for name, table in self.tables.items()}
            self.usable = found == _TABLES

    def takes(self, tags: Mapping[str, str], params: Mapping[str, str], metrics: Sequence[Metric]) -> bool:
        """Whether all values are such that MLflow would store them as they are."""
        keys = {*tags, *params, *(metric.key for metric in metrics)}
        return (
            self.usable
            and all(_KEY.fullmatch(key) for key in keys)
            and all(len(value) <= _PARAM_CHARACTERS for value in params.values())
            and all(len(value) <= _TAG_CHARACTERS for value in tags.values())
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
        metrics: Sequence[Metric],
        dataset: tuple[str, str, str, str] | None,
    ) -> None:
        """Insert a finished run with all that belongs to it; ``dataset``: name, digest, source, profile."""
        rows: dict[str, list[dict[str, Any]]] = {
            "SqlRun": [
                {
                    "run_uuid": run_id,
                    "name": name,
                    "artifact_uri": f"{self.location}/{run_id}/artifacts",
                    "experiment_id": self.experiment_id,
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
            ],
            "SqlTag": [
                {"run_uuid": run_id, "key": key, "value": value}
                for key, value in {**tags, "mlflow.runName": name}.items()
            ],
            "SqlParam": [{"run_uuid": run_id, "key": key, "value": value} for key, value in params.items()],
        }
        points = [{"run_uuid": run_id, **_point(metric)} for metric in metrics]
        rows["SqlMetric"] = list({tuple(sorted(point.items())): point for point in points}.values())
        latest: dict[str, dict[str, Any]] = {}
        for point in points:
            before = latest.get(point["key"])
            if before is None or _moment(point) > _moment(before):
                latest[point["key"]] = point
        rows["SqlLatestMetric"] = list(latest.values())
        with self.session() as session:
            if dataset is not None:
                self._add_dataset(session, rows, run_id, *dataset)
            for table, values in rows.items():
                if values:
                    session.execute(self.tables[table].insert(), values)

    def _add_dataset(
        self, session: Any, rows: dict[str, list[dict[str, Any]]], run_id: str, name: str, digest: str, *rest: str
    ) -> None:
        source, profile = rest
        if (name, digest) not in self._datasets:
            table = self.tables["SqlDataset"]
            query = table.select().where(
                table.c.experiment_id == self.experiment_id, table.c.name == name, table.c.digest == digest
            )
            known = session.execute(query).mappings().first()
            self._datasets[name, digest] = known["dataset_uuid"] if known is not None else uuid.uuid4().hex
            if known is None:
                own = {"dataset_uuid": self._datasets[name, digest], "experiment_id": self.experiment_id}
                own |= {"name": name, "digest": digest, "dataset_source_type": "local", "dataset_source": source}
                rows["SqlDataset"] = [{**own, "dataset_profile": profile}]
        edge = uuid.uuid4().hex
        rows["SqlInput"] = [
            {
                "input_uuid": edge,
                "source_type": "DATASET",
                "source_id": self._datasets[name, digest],
                "destination_type": "RUN",
                "destination_id": run_id,
            }
        ]
        rows["SqlInputTag"] = [{"input_uuid": edge, "name": "mlflow.data.context", "value": "training"}]


def _point(metric: Metric) -> dict[str, Any]:
    """A metric as MLflow stores it: NaN as a mark, infinities as the largest number."""
    value, nan = float(metric.value), math.isnan(metric.value)
    if math.isinf(value):
        value = math.copysign(sys.float_info.max, value)
    own = {"key": metric.key, "value": 0.0 if nan else value, "is_nan": nan}
    return {**own, "timestamp": metric.timestamp, "step": metric.step}


def _moment(point: Mapping[str, Any]) -> tuple[int, int, float]:
    """Of two values of a metric, MLflow calls the one with the larger moment the latest."""
    return point["step"], point["timestamp"], point["value"]
