"""How MLflow's page shows the experiment: the columns of the current grid, as its own *Share* button stores them."""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Any
from urllib.parse import quote

from regft_core.metrics import higher_is_better
from regft_core.tracking.entries import VERDICTS, Entry

VIEW = "regft"
#: One line per method, task and size of the current grid, and the report; the page nests seeds only without a filter.
CURRENT = "tags.current = 'true' and tags.`regft.kind` != 'run' and tags.`regft.kind` != 'phase'"
RUN_NAME = "attributes.`Run Name`"

NOTE = """\
One run for each method, task and training size: the mean score over its seeds with its interval (`score_low`,
`score_high`), verdicts, and scores out of distribution, in points as in the report. Below it one run per seed, and
below that one per phase where there are several. The run `report` holds the report.

Delete the filter to see seeds, phases (sort by *Created*) and earlier configurations. Select the runs before and after
an edit of `params.yaml` and press *Compare*: the parameters that differ are the edit.
"""


def experiment_tags(cells: Sequence[Entry]) -> dict[str, str]:
    """The tags of the experiment: its note and its shared view."""
    return {
        # "model training" rather than the generative-AI pages, which newer releases open first
        "mlflow.experimentKind": "custom_model_development",
        "mlflow.note.content": NOTE,
        f"mlflow.sharedViewState.{VIEW}": json.dumps(view_state(cells), sort_keys=True),
    }


def view_state(cells: Sequence[Entry]) -> dict[str, Any]:
    """Columns and order of the page: the main score, its interval and verdict, scores out of distribution, cost."""
    names = list(dict.fromkeys(name for cell in cells for name in cell.scores))
    primaries = {cell.tags["primary"] for cell in cells if cell.tags.get("primary")}
    others = [n for n in names if n.count(".") == 1 and n.split(".")[1] in primaries and not n.startswith("dev.")]
    verdicts = [f"tags.`{name}`" for name in VERDICTS if any(cell.tags.get(name) for cell in cells)]
    columns = [
        *(f"metrics.`{name}`" for name in ("score", "score_low", "score_high") if name in names),
        *verdicts[:1],
        *(f"metrics.`{name}`" for name in [*others[:4], "cost"] if name in names),
        *verdicts[1:],
        "metrics.`seeds`",
        "tags.`status`",
    ]
    return {
        "searchFilter": CURRENT,
        "orderByKey": "metrics.`score`",
        "orderByAsc": bool(primaries) and not any(map(higher_is_better, primaries)),
        "selectedColumns": columns,
        "columnOrder": [RUN_NAME, *columns],
        # As wide as their names: score, interval, verdict and three sets out of distribution fit into 1,440 pixels.
        "columnWidths": {
            RUN_NAME: 200,
            **{name: 132 if name in verdicts else max(78, 6 * len(name) - 36) for name in columns},
        },
        "runsHiddenMode": "FIRST_20_RUNS",
    }


def runs_page(base: str, experiment_id: str) -> str:
    """Address of the experiment's runs with these columns; ``base`` is like ``http://127.0.0.1:5000``."""
    return f"{base}/#/experiments/{quote(experiment_id)}/runs?workflowType=machine_learning&viewStateShareKey={VIEW}"
