"""How fast the finished model is and how large: measured on this machine, whatever else it is doing.

Texts per second of a forward pass over the first ``examples`` examples of the development set, tokenised
before, in the batches of evaluation: the fastest of ``repeats`` after one that is not counted, since other
work on the machine only ever slows it down. Sizes are those of the parameters in memory. With several workers
on one device the runs slow each other; ``execution.workers: 1`` measures them alone.
"""

from __future__ import annotations

import time
from typing import TYPE_CHECKING

from pydantic import Field

from regft_core.evaluate.analysis_result import RUN, Findings
from regft_core.schema import StrictModel

if TYPE_CHECKING:
    from regft_core.evaluate.evaluated import EvaluatedRun

DESCRIPTION = "inference speed on this machine, and the size of the model"
NEEDS_MODEL = True
MACHINE_DEPENDENT = True


class Config(StrictModel):
    examples: int = Field(256, ge=1, description="examples of the development set, all when it has fewer")
    repeats: int = Field(3, ge=1, le=100, description="timed passes, of which the fastest counts")


def run(run: EvaluatedRun) -> Findings:
    model = run.trained.model
    encoded = run.trained.encode(run.sets["dev"].examples[: run.options.examples])
    run.trained.predict(encoded)
    seconds = []
    for _ in range(run.options.repeats):
        begin = time.perf_counter()
        run.trained.predict(encoded)  # ends with a copy to the CPU, so nothing is still running
        seconds.append(time.perf_counter() - begin)
    parameters = list(model.parameters())
    scalars = {
        "examples_per_second": len(encoded) / min(seconds),
        "parameters": float(sum(parameter.numel() for parameter in parameters)),
        "bytes": float(sum(parameter.numel() * parameter.element_size() for parameter in parameters)),
    }
    return Findings({RUN: scalars}, ranges=dict.fromkeys(scalars, (0.0, None)))
