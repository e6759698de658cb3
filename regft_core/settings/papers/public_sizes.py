"""Training rows of public sets and sizes of public encoders, to estimate from before anything was fetched.

Facts from the sets' own papers and pages; rows without a label (SNLI's) are not counted. Nothing that is computed or
stored rests on them: once a dataset is prepared, its own count is taken.
"""

from __future__ import annotations

from regft_core.schema.tasks import TaskConfig

#: Hub id and configuration -> labelled training rows.
TRAINING_ROWS: dict[tuple[str, str | None], int] = {
    ("nyu-mll/glue", "cola"): 8_551,
    ("nyu-mll/glue", "mnli"): 392_702,
    ("nyu-mll/glue", "mrpc"): 3_668,
    ("nyu-mll/glue", "qnli"): 104_743,
    ("nyu-mll/glue", "qqp"): 363_846,
    ("nyu-mll/glue", "rte"): 2_490,
    ("nyu-mll/glue", "sst2"): 67_349,
    ("nyu-mll/glue", "stsb"): 5_749,
    ("stanfordnlp/snli", "plain_text"): 549_367,
    ("clue/clue", "afqmc"): 34_334,
    ("clue/clue", "cmnli"): 391_783,
    ("clue/clue", "csl"): 20_000,
    ("clue/clue", "iflytek"): 12_133,
    ("clue/clue", "ocnli"): 50_437,
    ("clue/clue", "tnews"): 53_360,
}


def published_rows(task: TaskConfig) -> int | None:
    """Training rows that the set of ``task`` is published with; None where that is not known."""
    if task.source.kind != "hub":
        return None
    return TRAINING_ROWS.get((task.source.id, task.source.config))
