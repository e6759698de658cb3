"""A rough estimate of GPU and CPU hours from declared passes and steps, for grids that were never timed."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING, Any

from regft_core.config.aliases import ALIASES
from regft_core.config.cost import PlanRow

if TYPE_CHECKING:
    from regft_core.config.project import Project

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
#: Operations per second that one GPU of the class of an A100 or H100 is assumed to sustain in training.
SPEED: dict[str, float] = {"fp32": 2.5e13, "bf16": 1.2e14, "fp16": 1.2e14}

#: The same of one CPU core; about what a core of a current server reaches with fp32 products of these sizes.
CORE_SPEED = 3.0e10


def encoder_weights(name: str, root: Path) -> float | None:
    """Weights in the encoder's layers: from the directory's configuration, else by the name; None when neither says."""
    path = root / name / "config.json"
    if name not in ALIASES and path.is_file():
        return _from_config(json.loads(path.read_text(encoding="utf-8")))
    return next((count for word, count in WEIGHTS.items() if word in name.lower()), None)


def _from_config(config: dict[str, Any]) -> float | None:
    sizes = [config.get(key) for key in ("num_hidden_layers", "hidden_size", "intermediate_size")]
    known = [size for size in sizes if isinstance(size, int)]
    if len(known) < len(sizes):
        return None
    layers, width, inner = known
    return float(layers * (4 * width**2 + 2 * width * inner))


def hours(project: Project, rows: list[PlanRow], weights: float) -> tuple[float, int]:
    """GPU hours of what is still to train, and the number of runs of unknown length that they leave out.

    A plain training step costs 6 operations per weight and token (2 forward, 4 backward); other methods their
    declared passes. Every example counts with ``max_length`` tokens in every window.
    """
    operations, unknown = _operations(project, rows, weights)
    return operations / SPEED[project.params.training.precision] / 3600, unknown


def gpu_hours(project: Project, rows: list[PlanRow]) -> str:
    """One paragraph: GPU hours of what is still to train, with the assumptions that they rest on."""
    model = project.params.model
    weights = encoder_weights(model.name, project.root)
    if weights is None:
        return f"GPU hours: not known; nothing tells the size of '{model.name}'"
    precision = project.params.training.precision
    count, unknown = hours(project, rows, weights)
    if unknown and not count:
        return f"GPU hours: not known; {unknown} runs are of unknown length until their dataset is prepared"
    length = "max_length tokens" if model.windows == 1 else f"{model.windows} windows of max_length tokens"
    text = (
        f"GPU hours: {shown(count)} (assumed: 6 operations per weight and token of a plain step, {weights:.2g} "
        f"weights in the encoder's layers, every example {length} long, {SPEED[precision] / 1e12:.0f} TFLOP/s "
        f"in {precision} on one A100 or H100; evaluation left out)"
    )
    return text + (f"; {unknown} runs of unknown length not counted" if unknown else "")


def core_hours(project: Project, rows: list[PlanRow]) -> str:
    """The same without a GPU: hours of one CPU core."""
    weights = encoder_weights(project.params.model.name, project.root)
    operations, unknown = _operations(project, rows, weights) if weights is not None else (0.0, 1)
    if unknown and not operations:
        return "CPU core hours: not known"
    return f"CPU core hours: {shown(operations / CORE_SPEED / 3600)} (assumed: {CORE_SPEED / 1e9:.0f} GFLOP/s a core)"


def _operations(project: Project, rows: list[PlanRow], weights: float) -> tuple[float, int]:
    """Operations of the runs that are still to train, and how many runs of unknown length are not in them."""
    total, unknown = 0.0, 0
    for row in rows:
        if row.examples is None:
            unknown += row.to_train
        else:
            model = project.model(row.cell.task)
            tokens = row.examples * model.max_length * model.windows
            total += row.to_train * tokens * 6 * weights
    return total, unknown


def shown(hours: float) -> str:
    """``about 12``."""
    if hours < 0.1:
        return "less than 0.1" if hours else "none"
    return f"about {hours:.2g}" if hours < 10 else f"about {hours:,.0f}"
