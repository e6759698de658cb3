"""Seconds of an example of each cell: steps measured on this machine, or an assumed speed."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

from regft_core.data.splits import of_seed
from regft_core.grid.executors import is_remote, visible_devices
from regft_core.grid.lengths import known_lengths
from regft_core.grid.step_times import step_times
from regft_core.hooks import compose
from regft_core.hooks.listed import answers_without_encoder
from regft_core.hooks.registry import discover
from regft_core.io.reading import read_json
from regft_core.models.aliases import ALIASES
from regft_core.models.source import encoder_present
from regft_core.schema.encoder import EncoderConfig
from regft_core.settings.grid import Cell
from regft_core.settings.project import Project

#: Weights in the layers of the encoder (embeddings take no matrix products), by the word for the size in a name.
WEIGHTS: dict[str, float] = {
    "xxlarge": 1.36e9,  # 48 layers of width 1536
    "xlarge": 6.8e8,  # 24 layers of width 1536; 48 of 1024 have 6.0e8
    "large": 3.02e8,  # 24 layers of width 1024
    "small": 9.5e6,  # 12 layers of width 256
    "base": 8.5e7,  # 12 layers of width 768
    "minilm": 1.06e7,  # 6 layers of width 384
    "mpnet": 8.5e7,
    "chinese-bert-wwm": 8.5e7,  # a base without the word
}
#: Operations per second that one GPU of the class of an A100 or H100 is assumed to sustain in training, by precision.
SPEED: dict[str, float] = {"fp32": 2.5e13, "bf16": 1.2e14, "fp16": 1.2e14}
#: The same of one CPU core; about what a core of a current server reaches with fp32 products of these sizes.
CORE_SPEED = 3.0e10
#: Tokens of the shortest rows that are timed; longer ones have a power of two of them.
_SHORTEST = 16


@dataclass(frozen=True)
class Rates:
    """Seconds of one worker.

    Attributes:
        train: of an example in a plain step: forward, backward, its share of the update.
        judge: of all scores of a finished run.
        epoch: of the scores on dev, where epochs are judged.
    """

    train: float
    judge: float = 0.0
    epoch: float = 0.0


#: Rates of a cell; None where nothing is known.
RatesOf = Callable[[Cell], Rates | None]


# ------------------------------------------------------------------------------------ assumed


def encoder_weights(name: str, root: Path) -> float | None:
    """Return the weights in the encoder's layers: by its configuration, else by its name; None when neither tells."""
    path = root / name / "config.json"
    if name not in ALIASES and path.is_file():
        config = json.loads(path.read_text(encoding="utf-8"))
        sizes = [config.get(key) for key in ("num_hidden_layers", "hidden_size", "intermediate_size")]
        if not all(isinstance(size, int) for size in sizes):
            return None
        layers, width, inner = sizes
        return float(layers * (4 * width**2 + 2 * width * inner))
    return next((count for word, count in WEIGHTS.items() if word in name.lower()), None)


def assumed(project: Project, speed: float) -> RatesOf:
    """Return rates at ``speed`` operations per second, of which a training step takes 6 per weight and token.

    Every example fills all its windows, and scores cost nothing.
    """
    weights = encoder_weights(project.params.model.name, project.root)

    def rates(cell: Cell) -> Rates | None:
        model = project.model(cell.task)
        return None if weights is None else Rates(model.max_length * model.windows * 6 * weights / speed)

    return rates


def assumed_here(project: Project) -> RatesOf:
    """``assumed`` at the speed of a core, or of a GPU where runs use one."""
    return assumed(project, CORE_SPEED if trains_on_cpu(project) else SPEED[project.params.training.precision])


def trains_on_cpu(project: Project) -> bool:
    """Whether runs are computed here, on the processor."""
    execution = project.params.execution
    return not is_remote(execution.executor) and visible_devices(execution.device) == ["cpu"]


# ------------------------------------------------------------------------------------ measured


def cannot_measure(project: Project) -> str:
    """Return why no step can be measured here; empty where one can."""
    execution, model = project.params.execution, project.params.model
    if is_remote(execution.executor):
        return f"executor '{execution.executor}' trains on other machines"
    if not encoder_present(model, project.root):
        return f"encoder '{model.name}' is not on this disk\n    -> fetch it: regft fetch; of a preset: --preset NAME"
    return ""


def measured(project: Project) -> RatesOf:
    """Return rates from the times of steps, which are measured when a cell first asks for them."""
    registry, sets_of = discover(), cache(lambda task: _sets(project, task))

    def rates(cell: Cell) -> Rates | None:
        method = project.method(cell.method, cell.task)
        if answers_without_encoder(compose.entries(registry, method.finetune.regularisers)) is not None:
            return Rates(0.0)
        encoder, training, sets = method.encoder(project.model(cell.task)), method.training, sets_of(cell.task)
        rows = {name: _tokens(lengths, encoder) for name, (_, lengths) in sets.items()}
        times = step_times(
            project,
            encoder,
            project.shared(cell.task).model_copy(update={"precision": training.precision}),
            _timed_length(rows["train"][0], encoder.max_length),
        )
        # Rows that are not sorted by length are padded to the longest of their batch.
        trained = rows["train"][training.bucket_batches == 1]
        scores = {name: n * rows[name][0] * times.judge for name, (n, _) in sets.items() if name != "train"}
        return Rates(
            train=trained * times.train + times.update / (training.batch_size * training.accumulation),
            judge=sum(scores.values()),
            epoch=scores.get("dev", 0.0),
        )

    return rates


def _timed_length(tokens: float, max_length: int) -> int:
    length = _SHORTEST
    while length < tokens:
        length *= 2
    return min(length, max_length)


def _sets(project: Project, task: str) -> dict[str, tuple[int, Mapping[str, Any]]]:
    """Set -> its number of rows and their lengths as ``work/lengths`` has them; ``train`` among them."""
    lengths = known_lengths(project, task)
    if lengths is None:
        return {"train": (0, {})}
    described = read_json(project.root / "work" / "datasets" / task / "task.json")
    sets = of_seed(described, project.params.grid.seeds[0]).get("sets", {})
    return {name: (sets.get(name, {}).get("n", 0), lengths["sets"].get(name, {})) for name in ("train", *sets)}


def _tokens(lengths: Mapping[str, Any], encoder: EncoderConfig) -> tuple[float, float]:
    """Tokens of an example on average, and of one that is padded to the longest of its batch."""
    most = encoder.max_length * encoder.windows
    separately = encoder.pairs == "separately" and "separately" in lengths
    read = lengths.get("separately" if separately else "jointly", {})
    median, p95, longest = (min(most, read.get(name, most)) for name in ("median", "p95", "longest"))
    # The mean of a curve through half the median (shortest), the median, the 95th percentile and the longest.
    mean = 0.6 * median + 0.25 * p95 + 0.025 * longest
    texts = 2 if separately else 1
    return texts * mean, texts * float(p95)
