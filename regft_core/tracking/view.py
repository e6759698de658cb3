"""How the MLflow UI shows the experiment: as model training, with useful columns and a note on filtering.

The columns are a shared view, as the UI's own Share button stores it: a tag of the experiment
that the address names. An MLflow that does not know it shows its default columns.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Any
from urllib.parse import quote

from regft_core.metrics import higher_is_better
from regft_core.tracking.records import CellRecord

VIEW = "regft"
#: One line per method, task and size, and the report; the page nests seeds under them only without a filter.
LINES = "tags.`regft.kind` != 'run'"
#: The score that sorts, and its interval.
PRIMARY = ("primary", "primary.low", "primary.high")
COSTS = ("cost.declared_ratio", "cost.ratio_measured", "cost.train_seconds", "cost.peak_memory_bytes")
CURVES = ("loss", "learning_rate", "gradient_norm")
RUN_NAME = "attributes.`Run Name`"

NOTE = """\
A mirror of `work/`: one run per cell (method x task x training size), sorted by its primary score on dev, and below
it one run per seed. Numbers of a cell are means over its seeds; `primary.low` and `primary.high` are the interval.
Delete the filter to see the seeds: sorted by *Created*, they nest under their cell. The files are the truth; delete
the database and `regft sync` brings it back.

Searches find only what the files say now. Runs of an earlier configuration are kept in the state *Deleted* (choose it
beside the search box; ``tags.`regft.status` = 'superseded'``) and return with the next sync after the configuration
does; `mlflow gc` deletes them for good.

Filters need the prefix `tags.`, `params.` or `metrics.` (a bare `task = 'rte'` is refused):

- one method on one task: `tags.task = 'rte' and tags.method = 'hype_n'`, or the same with `params.`
- by name: `run_name LIKE '%hype_n rte%'`
- all that use a regulariser: `tags.regularisers LIKE '%hype%'`
- without runs that you added yourself: ``tags.`regft.status` = 'current'``
- only means over seeds, or only seeds: ``tags.`regft.kind` = 'cell'``, ``tags.`regft.kind` = 'run'``
- what failed or collapsed: `tags.status = 'failed'`, `metrics.collapsed = 1`
- by score: ``metrics.`dev.accuracy` > 0.8``, or `metrics.primary > 0.8` (the task's main metric on dev, named by the
  tag `primary`)

Columns to add: *Dataset* (rows that trained and judged), *Version* (commit of the project when the run came in). The
run named `report` holds the report. `regft export --register` adds a model to the registry.
The button *Override saved view* keeps these columns for later visits.
"""


def experiment_tags(records: Sequence[CellRecord]) -> dict[str, str]:
    """The tags of the experiment: the note and the shared view."""
    return {
        # "model training" rather than the generative-AI pages, which newer releases open first
        "mlflow.experimentKind": "custom_model_development",
        "mlflow.note.content": NOTE,
        f"mlflow.sharedViewState.{VIEW}": json.dumps(view_state(records), sort_keys=True),
    }


def view_state(records: Sequence[CellRecord]) -> dict[str, Any]:
    """Columns and order of the runs page: sorted by the main score, its interval, then what was run.

    The page puts all metrics before all parameters, so each further score would push method, task, size and seed out
    of sight; the others are in the charts, and a click on *Columns* away.
    """
    names = list(dict.fromkeys(name for record in records for name in record.scores))
    tags = {name for record in records for name in record.tags}
    own = ("cost.", "primary.")
    scores = [n for n in names if n.count(".") == 1 and not n.startswith(own)]
    columns = [
        *(f"metrics.`{name}`" for name in PRIMARY if name in names),
        *(f"params.`{name}`" for name in ("method", "task", "size")),
        *(f"tags.`{name}`" for name in ("verdict_reference", "verdict_control") if name in tags),
        "tags.`status`",
    ]
    widths = {"params.`method`": 120, "params.`size`": 50}
    widths |= {f"tags.`verdict_{role}`": 150 for role in ("reference", "control")}
    primaries = {record.tags["primary"] for record in records if "primary" in record.tags}
    return {
        "searchFilter": LINES,
        "orderByKey": "metrics.`primary`",
        "orderByAsc": bool(primaries) and not any(map(higher_is_better, primaries)),
        "selectedColumns": columns,
        "columnOrder": [RUN_NAME, *columns],
        "columnWidths": {RUN_NAME: 220} | {name: widths.get(name, 90) for name in columns},
        "runsHiddenMode": "FIRST_20_RUNS",
        **_charts(names, scores),
    }


def _charts(names: Sequence[str], scores: Sequence[str]) -> dict[str, Any]:
    """Sections in the order in which one asks, above the charts that the page makes of everything by itself.

    How good, at what cost, and how it trained (of seeds, once the filter is deleted).
    """

    def section(name: str, generated: bool) -> dict[str, Any]:
        return {"uuid": name, "name": name, "display": True, "isReordered": False, "isGenerated": generated}

    def chart(name: str, place: str, kind: str) -> dict[str, Any]:
        shown = {"metricKey": name, "displayName": name, "metricSectionId": place, "runsCountToCompare": 20}
        return {"uuid": f"chart-{name}", "type": kind, "deleted": False, "isGenerated": True, **shown}

    charts = [chart(name, "Scores", "BAR") for name in scores]
    charts += [chart(name, "Cost", "BAR") for name in COSTS if name in names]
    charts += [chart(name, "Training", "LINE") for name in CURVES]
    ours = [section(name, False) for name in ("Scores", "Cost", "Training")]
    sections = [*ours, section("Model metrics", True), section("System metrics", True)]
    # Else the page sorts sections by name.
    return {"compareRunCharts": charts, "compareRunSections": sections, "isAccordionReordered": True}


def runs_page(base: str, experiment_id: str) -> str:
    """Address of the experiment's runs with these columns; ``base`` is like ``http://127.0.0.1:5000``."""
    return f"{base}/#/experiments/{quote(experiment_id)}/runs?workflowType=machine_learning&viewStateShareKey={VIEW}"
