"""An exported classifier as ``model.onnx``, whose logits onnxruntime must give as torch does before it is kept."""

from __future__ import annotations

import importlib.util
import logging
import warnings
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from regft_core.data.batches import padding_of
from regft_core.errors import ExportMismatch, ModelError
from regft_core.models.sites import takes_token_types

FILE = "model.onnx"
#: Largest difference of logits between torch and onnxruntime, relative to the largest logit where that is above 1.
TOLERANCE = 1e-4
#: What the extra ``onnx`` of pyproject.toml brings.
PACKAGES = ("onnx", "onnxruntime", "onnxscript")


class _Logits(nn.Module):
    """A classifier whose inputs are positional and whose output is a tensor, as a graph needs them."""

    def __init__(self, model: Any, names: tuple[str, ...]) -> None:
        super().__init__()
        self.model, self.names = model, names

    def forward(self, *inputs: Tensor) -> Tensor:
        return self.model(**dict(zip(self.names, inputs, strict=True))).logits


def require_onnx() -> None:
    """Raise ModelError, with the command that installs them, when a package is missing."""
    if lacking := [name for name in PACKAGES if importlib.util.find_spec(name) is None]:
        hint = "in the project's environment: pip install -c constraints.txt -e '.[onnx]'"
        raise ModelError("package-missing", f"export --onnx: {', '.join(lacking)} is not installed\n    -> {hint}")


def write_onnx(model: Any, directory: Path, batch: Mapping[str, Tensor]) -> float:
    """Write ``model.onnx`` for any size and length; return the largest difference of logits on ``batch`` [rows, n].

    Raises ExportMismatch where it is above ``TOLERANCE``, ModelError without a package or where it cannot be traced.
    """
    require_onnx()
    typed = takes_token_types(model)
    inputs = {name: value.cpu() for name, value in batch.items() if typed or name != "token_type_ids"}
    any_size = dict.fromkeys((0, 1), torch.export.Dim.DYNAMIC)
    level = logging.getLogger("torch.onnx").level
    logging.getLogger("torch.onnx").setLevel(logging.ERROR)  # packages of images that nobody needs here
    try:
        with warnings.catch_warnings(), torch.no_grad():
            warnings.simplefilter("ignore")
            expected = model(**inputs).logits
            program = torch.onnx.export(
                _Logits(model, tuple(inputs)).eval(),
                tuple(inputs.values()),
                input_names=tuple(inputs),
                output_names=["logits"],
                dynamic_shapes=((any_size,) * len(inputs),),
                dynamo=True,
                verbose=False,
            )
            assert program is not None
            program.save(str(directory / FILE), external_data=False)
    except Exception as error:  # the exporter has its own error for every step
        last = (str(error).strip().splitlines() or [type(error).__name__])[0]
        message = f"export --onnx: {model.config.model_type} cannot be traced: {last}"
        raise ModelError("no-onnx", f"{message}\n    -> leave --onnx out") from error
    finally:
        logging.getLogger("torch.onnx").setLevel(level)
    found = logits_of(directory / FILE, inputs)
    gap = float((found - expected).abs().max())
    least = 1.0 if expected.shape[1] > 1 else 0.0  # a single output is a value in a unit of its own
    if not gap <= TOLERANCE * max(least, float(expected.abs().max())):
        message = f"export --onnx: the logits of {FILE} differ from torch's by up to {gap:.3g}; nothing was written"
        hint = "leave --onnx out, or install another version of onnxruntime"
        raise ExportMismatch("export-differs", f"{message}\n    -> {hint}")
    return gap


def logits_of(path: Path, batch: Mapping[str, Tensor]) -> Tensor:
    """Logits [B, K] that onnxruntime computes on the CPU; inputs that the graph does not have are left out."""
    import onnxruntime

    session = onnxruntime.InferenceSession(str(path), providers=["CPUExecutionProvider"])
    asked = {one.name for one in session.get_inputs()}
    outputs = session.run(["logits"], {name: value.numpy() for name, value in batch.items() if name in asked})
    return torch.from_numpy(outputs[0]).view(len(outputs[0]), -1)


def card_section(gap: float, rows: int, tokenizer: Any, paired: bool) -> str:
    """Return the section of the model card on ``model.onnx``: how near it is, and how to run it without torch."""
    padding = padding_of(tokenizer)
    pad = f'direction="{padding.side}", pad_id={padding.pad_id}, pad_type_id={padding.pad_token_type_id}'
    two = "\nRows 2i and 2i + 1 are the two texts of pair i.\n" if paired else ""
    return f"""
## ONNX

`{FILE}` gives the logits of the weights within {gap:.1g} (largest difference on {rows} training rows).
{two}
```python
import numpy, onnxruntime
from tokenizers import Tokenizer

tokenizer, session = Tokenizer.from_file("tokenizer.json"), onnxruntime.InferenceSession("{FILE}")
tokenizer.encode_special_tokens = {tokenizer.split_special_tokens}
tokenizer.enable_padding({pad}, pad_token="{tokenizer.pad_token}")
rows = tokenizer.encode_batch(["a text", "another one"])
given = {{"input_ids": [r.ids for r in rows], "attention_mask": [r.attention_mask for r in rows]}}
given["token_type_ids"] = [r.type_ids for r in rows]
names = [one.name for one in session.get_inputs()]
logits = session.run(["logits"], {{name: numpy.array(given[name]) for name in names}})[0]
```
"""
