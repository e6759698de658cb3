"""Write one fine-tuned run as a directory that predicts: Hugging Face's, where there is a model (not a DVC stage).

regft export --method hype_n --task sst2 --size 300 --seed 0
regft export --method hype_n --task sst2 --size 300 --seed 0 --accuracy 0.95
"""

from __future__ import annotations

import argparse
from pathlib import Path

from regft_core.exporting.export import export
from regft_core.run.context import Job

from .common import METHOD, SEED, SIZE, TASK, Argument, run


def main(root: Path, arguments: argparse.Namespace) -> None:
    """Write exports/METHOD-TASK-SIZE-seed-SEED: weights, tokenizer, model card; its logits are those of the run."""
    job = Job(str(root), arguments.method, arguments.task, arguments.size, arguments.seed)
    target = export(job, accuracy=arguments.accuracy)
    shown = target.relative_to(root) if target.is_relative_to(root) else target
    print(f"exported to {shown}; {shown}/README.md says how to load it. Predict new texts:")
    print(f"  regft predict --model {shown} --data new.csv --out predictions.csv")


if __name__ == "__main__":
    run(
        main,
        METHOD,
        TASK,
        SIZE,
        SEED,
        Argument(
            "accuracy",
            "share of right answers to guarantee, like 0.95: rows on which the model is less confident stay unanswered",
            required=False,
            kind=float,
        ),
    )
