"""How the MLflow UI shows the experiment: as model training, with useful columns and a note on filtering.

The columns are a shared view, as the UI's own Share button stores it: a tag of the experiment
that the address names. An MLflow that does not know it shows its default columns.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Any
from urllib.parse import quote

from regft_core.tracking.records import CellRecord

VIEW = "regft"
RUN_NAME = "attributes.`Run Name`"

NOTE = """\
A mirror of `work/`: one run per seed, nested under one run per cell (method x task x training size).
Numbers of a cell are means over its seeds. The files are the truth; delete the database and
`regft sync` brings it back.

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

The run named `report` holds the report. The button *Override saved view* keeps these columns for later visits.
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
    """Columns and order of the runs page: the main score, then what was run.

    The page puts all metrics before all parameters, so each further score would push method, task, size and seed out
    of sight; the others are in the charts, and a click on *Columns* away.
    """
    names = list(dict.fromkeys(name for record in records for name in record.scores))
    scores = [n for n in names if "." in n and not n.startswith("cost.") and n.count(".") == 1 and "collapsed" not in n]
    columns = [
        *(f"metrics.`{name}`" for name in ("primary",) if name in names),
        *(f"params.`{name}`" for name in ("method", "task", "size", "seed")),
        "tags.`status`",
    ]
    widths = {"metrics.`primary`": 80, "params.`method`": 120, "params.`size`": 50, "params.`seed`": 50}
    return {
        "searchFilter": "",
        # Only in the order of creation does the page nest seeds under their cell.
        "orderByKey": "attributes.start_time",
        "orderByAsc": False,
        "selectedColumns": columns,
        "columnOrder": [RUN_NAME, *columns],
        # Wide enough for an indented name with its seed.
        "columnWidths": {RUN_NAME: 240} | {name: widths.get(name, 100) for name in columns},
        "runsHiddenMode": "FIRST_20_RUNS",
        **_charts(scores),
    }


def _charts(scores: Sequence[str]) -> dict[str, Any]:
    """A section of bars for the scores, above the charts that the page makes of everything by itself."""

    def section(name: str, generated: bool) -> dict[str, Any]:
        return {"uuid": name, "name": name, "display": True, "isReordered": False, "isGenerated": generated}

    charts = [
        {
            "uuid": f"score-{name}",
            "type": "BAR",
            "metricKey": name,
            "displayName": name,
            "metricSectionId": "Scores",
            "runsCountToCompare": 20,
            "deleted": False,
            "isGenerated": True,
        }
        for name in scores
    ]
    sections = [section("Scores", False), section("Model metrics", True), section("System metrics", True)]
    return {"compareRunCharts": charts, "compareRunSections": sections}


def runs_page(base: str, experiment_id: str) -> str:
    """Address of the experiment's runs with these columns; ``base`` is like ``http://127.0.0.1:5000``."""
    return f"{base}/#/experiments/{quote(experiment_id)}/runs?workflowType=machine_learning&viewStateShareKey={VIEW}"
