"""Stage 3: train the last phase of every run, evaluate each.

Writes work/finetune; the weights are in the run store. A killed run continues
when repeated. `dvc repro` runs it.

examples
  regft finetune --only lp_ft/film_polarity

next: regft evaluate
"""

from __future__ import annotations

from .common import run_stage

if __name__ == "__main__":
    run_stage("finetune")
