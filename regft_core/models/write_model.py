"""Write a fine-tuned model as a directory that transformers loads without regft (``exported_folder.py``)."""

from __future__ import annotations

import copy
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import torch
from transformers import AutoModel, AutoModelForMaskedLM, AutoModelForSequenceClassification

from regft_core.disk.files import atomic_directory
from regft_core.errors import ExportMismatch
from regft_core.models.export_record import Served, refuse_foreign, write_served
from regft_core.models.exported_folder import CODE, logits_of_folder, write_classifier
from regft_core.models.heads import MaskClassifier, PooledClassifier, evaluating, last_linear, without_pooler
from regft_core.models.load import quiet, read_tokenizer
from regft_core.models.onnx import card_section, write_onnx
from regft_core.models.sites import classify, takes_token_types

_PROBE = ("The quick test, with a comma.", "And a second text?")


def export_model(
    model: Any,
    tokenizer: Any,
    directory: Path,
    *,
    card: str,
    check_batch: Mapping[str, torch.Tensor],
    max_length: int,
    served: Served | None = None,
    temperature: float = 1.0,
    onnx: bool = False,
) -> Path:
    """Write weights (safetensors), configuration, tokenizer and model card; return ``directory``, complete and checked.

    Args:
        check_batch: model inputs (tensors [rows, n]) on which the written model must agree.
        max_length: tokens that the model was trained with, to which the written tokenizer truncates.
        temperature: what the logits are divided by, in the head's weights, or as a number for a head at a mask.

    Raises ExportMismatch where reloaded model or tokenizer differ, ModelError, StoreError.
    """
    refuse_foreign(directory, "config.json")
    expected = _logits(model, check_batch)
    plain = _plain_copy(model)
    if temperature != 1.0 and not isinstance(plain, MaskClassifier):
        names = [name for name, _ in plain.named_parameters()]  # the head's come after the encoder's
        for parameter in plain.get_submodule(last_linear(plain, names, plain.config.num_labels)).parameters():
            parameter.detach().div_(temperature)
    described = served or Served(text="text", kind="classification", max_length=max_length)
    with atomic_directory(directory) as temporary, quiet():
        longest = write_classifier(plain, tokenizer, temporary, max_length, described, temperature)
        tokenizer = _written_tokenizer(tokenizer, max_length, longest, takes_token_types(plain), described)
        tokenizer.save_pretrained(temporary)
        (temporary / "README.md").write_text(card, encoding="utf-8")
        if served is not None:
            stock = (plain, tokenizer) if not (temporary / CODE).is_file() else ()
            write_served(temporary, served, *stock)
        _check_logits(temporary, directory, expected / temperature, model, check_batch)
        _check_tokenizer(temporary, directory, tokenizer, longest, plain.config.model_type)
        if onnx:
            gap = write_onnx(plain, temporary, check_batch)
            section = card_section(gap, len(expected), tokenizer, getattr(plain, "rows_per_example", 1) == 2)
            (temporary / "README.md").write_text(card + section, encoding="utf-8")
        # safetensors writes for the owner alone; a text has the rights of the umask.
        rights = (temporary / "README.md").stat().st_mode
        for path in filter(Path.is_file, temporary.rglob("*")):
            path.chmod(rights)
    return directory


def _plain_copy(model: Any) -> Any:
    """Return a classifier of the same architecture and weights, on the CPU and without hooks, in evaluation mode."""
    options = {"attn_implementation": model.config._attn_implementation}
    config = copy.deepcopy(model.config)
    with quiet(), torch.random.fork_rng(devices=[]):
        if isinstance(model, MaskClassifier):
            plain: Any = MaskClassifier(AutoModelForMaskedLM.from_config(config, **options))
        elif isinstance(model, PooledClassifier):
            encoder = AutoModel.from_config(config, **options, **without_pooler(type(model.base_model)))
            plain = PooledClassifier(encoder, pooling=model.pooling, rows_per_example=model.rows_per_example)
        else:
            plain = AutoModelForSequenceClassification.from_config(config, **options)
    plain.load_state_dict(model.state_dict())
    return plain.eval()


def _written_tokenizer(tokenizer: Any, max_length: int, longest: int, typed: bool, served: Served) -> Any:
    """A copy that truncates to ``longest`` tokens (tokenizer.json to ``max_length``), without unused token types."""
    tokenizer = copy.deepcopy(tokenizer)
    if served.instruction or served.windows > 1:
        tokenizer.truncation_side = "right"  # as data/prompts.py cuts
    tokenizer.model_max_length = longest
    tokenizer.split_special_tokens = served.prompt is None  # in a template stands the mask
    tokenizer.backend_tokenizer.enable_truncation(max_length=max_length, direction=tokenizer.truncation_side)
    if not typed:
        names = [name for name in tokenizer.model_input_names if name != "token_type_ids"]
        tokenizer.model_input_names = tokenizer.init_kwargs["model_input_names"] = names
    return tokenizer


def _logits(model: Any, batch: Mapping[str, torch.Tensor]) -> torch.Tensor:
    with evaluating(model), torch.no_grad():
        return classify(model, {name: value.to(model.device) for name, value in batch.items()})[0]


def _check_logits(
    temporary: Path, directory: Path, expected: torch.Tensor, model: Any, batch: Mapping[str, torch.Tensor]
) -> None:
    """Raise ExportMismatch where the written files give other logits [B, K]."""
    found = logits_of_folder(temporary, batch, model)
    # To the last bits of a sum; elsewhere products have other shapes, and a temperature rounds before the product.
    same = torch.equal(expected, _logits(model, batch)) and not isinstance(model, MaskClassifier)
    tolerance = (2e-6 if same else 1e-5) * float(expected.abs().max())
    if found.shape != expected.shape or not torch.allclose(found, expected, rtol=0.0, atol=tolerance):
        gap = (found - expected).abs().max().item() if found.shape == expected.shape else float("nan")
        message = f"export to {directory}: the reloaded model's logits differ by up to {gap:.3g}; nothing was written"
        hint = "correct what acts outside the plain weights in evaluation (a hook with always=True, a wrapped module)"
        raise ExportMismatch("export-differs", f"{message}\n    -> {hint}; predictions are in work/evaluate")


def _check_tokenizer(temporary: Path, directory: Path, tokenizer: Any, longest: int, model_type: str) -> None:
    """Raise ExportMismatch where the written tokenizer gives other tokens, or truncates elsewhere."""
    again = read_tokenizer(temporary, str(directory), model_type)
    same = again(*_PROBE)["input_ids"] == tokenizer(*_PROBE)["input_ids"]
    long = " ".join(_PROBE * min(longest, 1000))
    cut = again(long, truncation=True)["input_ids"]
    if not same or cut != tokenizer(long, truncation=True, max_length=longest)["input_ids"]:
        message = f"export to {directory}: the reloaded tokenizer encodes differently; nothing was written"
        hint = "save the tokenizer with the installed transformers beside the weights, and train again"
        raise ExportMismatch("export-differs", f"{message}\n    -> {hint}")
