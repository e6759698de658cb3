"""Stage 2: trials of tuned methods, phases before fine-tuning.

Writes work/search for every cell that has such phases. `dvc repro` runs it.

examples
  regft search --only lp_ft/film_polarity

next: regft finetune
"""

from __future__ import annotations

from .common import run_stage

if __name__ == "__main__":
    run_stage("search")
