"""Stage 4: scores on validation and out-of-distribution sets.

Writes work/evaluate: scores, the prediction for each row, and the results of
further analyses. `dvc repro` runs it.

examples
  regft evaluate --only lp_ft/film_polarity

next: regft report
"""

from __future__ import annotations

from .common import run_stage

if __name__ == "__main__":
    run_stage("evaluate")
