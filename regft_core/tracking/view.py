"""How MLflow's page shows the experiment: the columns of the current grid, as its own *Share* button stores them."""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Any
from urllib.parse import quote

from regft_core.metrics import higher_is_better
from regft_core.tracking.entries import Entry

VIEW = "regft"
#: One line per method, task and size of the current grid, and the report; the page nests seeds only without a filter.
CURRENT = "tags.current = 'true' and tags.`regft.kind` != 'run' and tags.`regft.kind` != 'phase'"
RUN_NAME = "attributes.`Run Name`"

NOTE = """\
One run for each method, task and training size, with the means over its seeds and their interval (`primary.low`,
`primary.high`); below it one run per seed, and below that one per phase where there are several.

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
    """Columns and order of the page: the main score with its interval, scores out of distribution, verdicts, cost."""
    names = list(dict.fromkeys(name for cell in cells for name in cell.scores))
    primaries = {cell.tags["primary"] for cell in cells if cell.tags.get("primary")}
    others = [n for n in names if n.count(".") == 1 and n.split(".")[1] in primaries and not n.startswith("dev.")]
    verdicts = [f"verdict_{role}" for role in ("reference", "control", "replacement")]
    columns = [
        *(f"metrics.`{name}`" for name in ("primary", "primary.low", "primary.high") if name in names),
        *(f"metrics.`{name}`" for name in [*others[:4], "cost.declared_ratio", "runs"] if name in names),
        *(f"tags.`{name}`" for name in verdicts if any(cell.tags.get(name) for cell in cells)),
        "tags.`status`",
    ]
    return {
        "searchFilter": CURRENT,
        "orderByKey": "metrics.`primary`",
        "orderByAsc": bool(primaries) and not any(map(higher_is_better, primaries)),
        "selectedColumns": columns,
        "columnOrder": [RUN_NAME, *columns],
        # Scores, sets out of distribution and the first verdict side by side at 1,440 pixels.
        "columnWidths": {RUN_NAME: 200, **{name: 88 for name in columns if name.startswith("metrics.")}},
        "runsHiddenMode": "FIRST_20_RUNS",
    }


def runs_page(base: str, experiment_id: str) -> str:
    """Address of the experiment's runs with these columns; ``base`` is like ``http://127.0.0.1:5000``."""
    return f"{base}/#/experiments/{quote(experiment_id)}/runs?workflowType=machine_learning&viewStateShareKey={VIEW}"
