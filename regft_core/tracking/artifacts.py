"""Tables and figures of what a run left: tensors by their numbers, trials, the members of a soup."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pandas as pd

from regft_core.runs.records import Tuned

if TYPE_CHECKING:
    from matplotlib.figure import Figure

#: Files of a stored run: what a phase hands on (attention), what it keeps beside the model (sensitivities, gates,
#: prefixes), and its weights.
HANDED, KEPT, WEIGHTS = "state", "kept", "weights"
_QUANTILES = {"q05": 0.05, "median": 0.5, "q95": 0.95}
#: Quantiles and the histogram are of at most as many values of each tensor, evenly spaced.
_SAMPLED = 100_000


def tensor_artifacts(stored: Path, names: Sequence[str]) -> dict[str, pd.DataFrame | Figure]:
    """Summarise the tensors of a stored run, file by file: a row for each tensor, and a figure of all values."""
    from safetensors import SafetensorError
    from safetensors.numpy import load_file

    artifacts: dict[str, pd.DataFrame | Figure] = {}
    for name in names:
        try:
            loaded = {key: value for key, value in load_file(stored / f"{name}.safetensors").items() if value.size}
        except (OSError, SafetensorError, TypeError):  # pruned, or of a type that numpy lacks (bf16)
            continue
        tensors = {key: value.view("uint8") if value.dtype == bool else value for key, value in loaded.items()}  # masks
        artifacts[f"tensors/{name}.json"] = _summary(tensors)
        artifacts[f"tensors/{name}.png"] = _figure(name, tensors)
    return artifacts


def _summary(tensors: Mapping[str, Any]) -> pd.DataFrame:
    import numpy as np

    rows = [
        {
            "tensor": name,
            "shape": "x".join(map(str, values.shape)) or "1",
            "mean": float(np.mean(values, dtype=np.float64)),
            "std": float(np.std(values, dtype=np.float64)),
            "min": float(values.min()),
            **dict(zip(_QUANTILES, map(float, np.quantile(_sample(values), [*_QUANTILES.values()])))),
            "max": float(values.max()),
        }
        for name, values in sorted(tensors.items())
    ]
    return pd.DataFrame(rows)


def _figure(name: str, tensors: Mapping[str, Any]) -> Figure:
    import numpy as np
    from matplotlib.figure import Figure

    figure = Figure(figsize=(10, 4), layout="constrained")
    histogram, by_tensor = figure.subplots(1, 2)
    histogram.hist(np.concatenate([_sample(values) for values in tensors.values()]), bins=50)
    histogram.set(title=f"{name}: all values", xlabel="value", ylabel="count", yscale="log")
    by_tensor.plot([float(np.mean(values, dtype=np.float64)) for _, values in sorted(tensors.items())], ".")
    by_tensor.set(title="mean of each tensor", xlabel="tensor, in the order of the table", ylabel="mean")
    return figure


def _sample(values: Any) -> Any:
    return values.ravel()[:: -(-values.size // _SAMPLED)]


def soup_table(soup: Mapping[str, Any]) -> pd.DataFrame:
    """List the members of a greedy soup: their own scores, and the place at which each was added (0: left out)."""
    members = range(len(soup["scores"]))
    places = [soup["chosen"].index(member) + 1 if member in soup["chosen"] else 0 for member in members]
    return pd.DataFrame({"member": members, "score": soup["scores"], "added": places})


def trials_table(tuned: Tuned) -> pd.DataFrame:
    """List the trials of a tuned run with their values and scores."""
    columns = {"trial", "score", "seconds", "steps", "error"}
    rows = [{**trial.values, **trial.model_dump(include=columns)} for trial in tuned.trials]
    return pd.DataFrame(rows).assign(chosen=[trial.trial == tuned.chosen for trial in tuned.trials])
