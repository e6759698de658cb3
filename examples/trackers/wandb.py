"""Weights & Biases: a run for each seed, grouped by method, task and size. Put this file into trackers/, and
`trackers: [mlflow, wandb]` into params.yaml; `pip install wandb`, then `wandb login`."""

import hashlib

import wandb


def log(root, read):
    runs = [(entry, run) for entry in read() for run in entry.nested]
    for entry, run in runs:
        name = hashlib.sha256(run.identity.encode()).hexdigest()[:32]  # a run that is there is continued
        with wandb.init(
            project=root.resolve().name,
            id=name,
            resume="allow",
            name=run.name,
            group=entry.name,
            config=dict(run.params),
        ) as logged:
            for point in sorted(run.points, key=lambda point: point.step):
                logged.log({point.name: point.value}, step=point.step)
            logged.summary.update(dict(run.scores))
    return f"W&B: {len(runs)} runs are there"
