"""A loaded classifier in another precision, to answer with: bf16, or int8 on a CPU.

int8 multiplies 8-bit integers in the linear layers of the encoder: weights with one scale per output, inputs with one
per row (dynamic, symmetric quantisation; LLM.int8(), Dettmers et al., NeurIPS 2022, section 2, without its outliers).
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor, nn

from regft_core.errors import ModelError
from regft_core.models.architectures import architecture_of
from regft_core.models.devices import multiplies_int8, no_bf16

#: Largest magnitude of a weight or an input as an integer.
_MOST = 127
#: An encoder with less than this share of its matrix products in linear layers would hardly get faster.
_ENOUGH = 0.5


class Int8Linear(nn.Module):
    """A linear layer that multiplies in int8. ``scales`` [out]: weights are ``integers`` [out, in] times these."""

    integers: Tensor
    scales: Tensor
    bias: Tensor | None

    def __init__(self, linear: nn.Linear) -> None:
        super().__init__()
        weight = linear.weight.detach()
        scales = weight.abs().amax(1).clamp_(min=torch.finfo(weight.dtype).tiny) / _MOST
        self.in_features, self.out_features = linear.in_features, linear.out_features
        self.register_buffer("integers", (weight / scales[:, None]).round_().to(torch.int8).t())
        self.register_buffer("scales", scales)
        self.register_buffer("bias", None if linear.bias is None else linear.bias.detach())

    def forward(self, inputs: Tensor) -> Tensor:
        """[..., out] of ``inputs`` [..., in]."""
        rows = inputs.reshape(-1, self.in_features)
        scale = rows.abs().amax(1, keepdim=True).clamp_(min=torch.finfo(rows.dtype).tiny) / _MOST
        products = torch._int_mm((rows / scale).round_().to(torch.int8), self.integers)
        found = products.to(rows.dtype).mul_(self.scales).mul_(scale)
        if self.bias is not None:
            found.add_(self.bias)
        return found.view(*inputs.shape[:-1], self.out_features)


def in_precision(model: Any, precision: str, device: str, where: str) -> Any:
    """The classifier, changed in place, as it answers in ``precision`` (fp32, bf16, int8). Raises ModelError."""
    if precision == "fp32":
        return model
    kind, of = torch.device(device).type, f"{where} is of the family {model.config.model_type}:"
    if precision == "bf16":
        if not architecture_of(model.config.model_type).half_precision:
            raise _refused("bf16", f"{of} its code fails in it", "leave --precision out")
        if message := no_bf16(kind):
            int8 = kind == "cpu" and multiplies_int8()
            raise _refused("bf16", message, "leave --precision out" + (", or int8" if int8 else ""))
        for _, linear in _linears(model):
            linear.to(torch.bfloat16)
        return model
    if kind != "cpu":
        raise _refused("int8", f"only on a CPU, not on {device}", "bf16, or --device cpu")
    if not multiplies_int8():
        message = "this cpu has no int8 products (neither vnni nor amx_tile), so it would be slower than fp32"
        raise _refused("int8", message, "leave --precision out")
    linears = _linears(model)
    inside = sum(linear.weight.numel() for _, linear in linears)
    embeddings = {id(module.weight) for module in model.base_model.modules() if isinstance(module, nn.Embedding)}
    matrices = [p for p in model.base_model.parameters() if p.dim() > 1 and id(p) not in embeddings]
    if inside < _ENOUGH * sum(parameter.numel() for parameter in matrices):
        raise _refused("int8", f"{of} its matrices are in no linear layers", "bf16, or fp32")
    for name, linear in linears:
        model.set_submodule(name, Int8Linear(linear))
    try:
        ids = torch.full((2, 4), min(5, model.config.vocab_size - 1))
        if getattr(model.config, "eos_token_id", None) is not None:
            ids[:, -1] = model.config.eos_token_id  # where BART's head reads
        with torch.inference_mode():
            model(input_ids=ids, attention_mask=torch.ones_like(ids))
    except (AttributeError, RuntimeError, TypeError) as error:
        message = f"{of} it reads the weights of its linear layers in its own way"
        raise _refused("int8", message, "bf16, or fp32") from error
    return model


def _refused(precision: str, message: str, hint: str) -> ModelError:
    return ModelError("precision-not-possible", f"--precision {precision}: {message}\n    -> {hint}")


def _linears(model: Any) -> list[tuple[str, nn.Linear]]:
    """The linear layers of the encoder by their names in the classifier."""
    prefix = next(name for name, module in model.named_modules() if module is model.base_model)
    every = model.base_model.named_modules(prefix=prefix)
    return [(name, module) for name, module in every if type(module) is nn.Linear]
