"""TensorBoard: curves and scores of each seed. Put this file into trackers/, and `trackers: [mlflow, tensorboard]`
into params.yaml; `pip install tensorboard`, then `tensorboard --logdir tensorboard`."""

from torch.utils.tensorboard import SummaryWriter


def log(root, read):
    runs = [run for entry in read() for run in entry.nested]
    folders = {root / "tensorboard" / run.identity: run for run in runs}
    new = {folder: run for folder, run in folders.items() if not folder.exists()}
    for folder, run in new.items():
        with SummaryWriter(str(folder)) as writer:
            for point in run.points:
                writer.add_scalar(point.name, point.value, point.step)
            for name, value in run.scores.items():
                writer.add_scalar(name, value)
    return f"TensorBoard: {len(new)} runs logged, {len(folders) - len(new)} as before"
