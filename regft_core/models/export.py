"""Write a fine-tuned model as an ordinary directory that needs nothing of regft.

With the family's own head it is a transformers directory, with pooling one of sentence-transformers (layout.py).
A model that answers at a mask is written as the masked LM that it is; ``regft.json`` has its template and words.

What a method added for training is folded into the plain weights first; the written directory is
loaded again and must reproduce the logits to the last bit before it gets its name.
"""

from __future__ import annotations

import copy
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import torch
from torch.nn.utils import parametrize

from regft_core.errors import ExportMismatch, ModelError
from regft_core.io.directories import atomic_directory
from regft_core.models.card import model_card
from regft_core.models.layout import logits_from, write_modules
from regft_core.models.load import empty_language_model, empty_mask_classifier, quiet
from regft_core.models.mask_head import MaskClassifier
from regft_core.models.onnx import card_section, write_onnx
from regft_core.models.pooling import PooledClassifier, without_pooler
from regft_core.models.served import Served, write_served
from regft_core.models.sites import classify, takes_token_types

__all__ = ["export_model", "fold", "model_card"]

_PROBE = ("The quick test, with a comma.", "And a second text?")


def fold(model: Any) -> Any:
    """Return a plain copy of a classifier: its own architecture, parametrized weights computed once, no hooks.

    ``model`` is left as it is. Raises ModelError when a method left parameters inside the model
    that the architecture does not have; such parameters would be lost without a word.
    """
    training = model.training
    model.eval()
    try:
        state = {name: value for name, value in model.state_dict().items() if ".parametrizations." not in f".{name}"}
        for name, module in model.named_modules():
            for tensor in getattr(module, "parametrizations", {}) if parametrize.is_parametrized(module) else ():
                state[f"{name}.{tensor}"] = getattr(module, tensor).detach()
    finally:
        model.train(training)
    plain = _empty_copy(model)
    wrong = plain.load_state_dict({name: value.to("cpu") for name, value in state.items()}, strict=False)
    if wrong.missing_keys or wrong.unexpected_keys:
        raise ModelError(
            "does-not-fold",
            f"export: the model does not fold into a plain {type(plain).__name__}: "
            f"left over {wrong.unexpected_keys[:5]}, missing {wrong.missing_keys[:5]}. "
            "A method keeps parameters of its own outside the model, or folds them into its weights when it finishes.\n"
            "    -> correct `finished` of the method (regft_core/hooks/base.py), or use another method",
        )
    return plain.eval()


def export_model(
    model: Any,
    tokenizer: Any,
    directory: Path,
    *,
    card: str,
    check_batch: Mapping[str, torch.Tensor],
    max_length: int | None = None,
    served: Served | None = None,
    onnx: bool = False,
) -> Path:
    """Write weights (safetensors), configuration, tokenizer and model card; return ``directory``.

    The directory appears complete or not at all; an earlier export under the same name is
    replaced in one step.

    Args:
        model: fine-tuned classifier, possibly parametrized and with hooks; it is not changed.
        card: text of README.md, see ``model_card``.
        check_batch: model inputs (tensors [rows, n]) on which the written model must agree.
        max_length: tokens that the model was trained with. The written tokenizer truncates to it wherever truncation
            is asked for (pipelines: ``truncation=True``); None leaves the tokenizer's own length.
        served: content of ``regft.json``, which ``regft predict`` reads.
        onnx: write ``model.onnx``, too; the card then says how near its logits are.

    Raises:
        ExportMismatch: the reloaded model or tokenizer differs; nothing is left behind.
        ModelError: the model cannot be folded or traced, or ``directory`` holds something else than a model.
        StoreError: the directory cannot be written.
    """
    directory = Path(directory)
    foreign = directory.exists() and not (directory / "config.json").is_file()
    if foreign and not (directory.is_dir() and not any(directory.iterdir())):
        raise ModelError(
            "in-the-way", f"export: {directory} exists and is not a model directory; choose another or remove it"
        )
    expected = _logits(model, check_batch)
    plain = fold(model)
    if max_length is not None:
        tokenizer = _truncating(tokenizer, max_length)
    with atomic_directory(directory) as temporary, quiet():
        if isinstance(plain, PooledClassifier):
            write_modules(plain, temporary, max_length, served.instruction if served is not None else "")
        elif isinstance(plain, MaskClassifier):
            _language_model(plain).save_pretrained(temporary)
        else:
            plain.save_pretrained(temporary)
        tokenizer.save_pretrained(temporary)
        (temporary / "README.md").write_text(card, encoding="utf-8")
        if served is not None:
            write_served(temporary, served)
        _check(temporary, directory, expected, model, tokenizer, check_batch, max_length)
        if onnx:
            gap = write_onnx(plain, temporary, check_batch)
            section = card_section(gap, len(expected), tokenizer, getattr(plain, "rows_per_example", 1) == 2)
            (temporary / "README.md").write_text(card + section, encoding="utf-8")
    return directory


def _sequence_classifier() -> Any:
    from transformers import AutoModelForSequenceClassification

    return AutoModelForSequenceClassification


def _empty_copy(model: Any) -> Any:
    """A classifier of the same architecture, with random weights."""
    from transformers import AutoModel

    config = copy.deepcopy(model.config)
    attention = model.config._attn_implementation
    with quiet(), torch.random.fork_rng(devices=[]):
        if isinstance(model, MaskClassifier):
            return empty_mask_classifier(config, attention)
        if not isinstance(model, PooledClassifier):
            return _sequence_classifier().from_config(config, attn_implementation=attention)
        options = without_pooler(type(model.base_model))
        encoder = AutoModel.from_config(config, attn_implementation=attention, **options)
        return PooledClassifier(encoder, pooling=model.pooling, rows_per_example=model.rows_per_example)


def _truncating(tokenizer: Any, max_length: int) -> Any:
    """A copy of the tokenizer whose longest input is ``max_length`` tokens."""
    tokenizer = copy.deepcopy(tokenizer)
    tokenizer.model_max_length = max_length
    # For programs that read tokenizer.json alone; transformers truncates where it is told to.
    tokenizer.backend_tokenizer.enable_truncation(max_length=max_length)
    return tokenizer


def _logits(model: Any, batch: Mapping[str, torch.Tensor]) -> torch.Tensor:
    training = model.training
    model.eval()
    try:
        with torch.no_grad():
            return classify(model, {name: value.to(model.device) for name, value in batch.items()})[0]
    finally:
        model.train(training)


def _language_model(model: MaskClassifier) -> Any:
    """A masked LM of the family's own class with the weights of a classifier."""
    plain = empty_language_model(model.config, model.config._attn_implementation)
    own = dict(model.named_buffers(recurse=False))
    plain.load_state_dict({name: value.cpu() for name, value in model.state_dict().items() if name not in own})
    return plain


def _logits_at_mask(directory: Path, batch: Mapping[str, torch.Tensor], model: MaskClassifier) -> torch.Tensor:
    """Logits [B, K] computed with transformers' masked LM alone, as another program would."""
    from transformers import AutoModelForMaskedLM

    language_model = AutoModelForMaskedLM.from_pretrained(
        directory, local_files_only=True, use_safetensors=True, attn_implementation=model.config._attn_implementation
    )
    inputs = {name: value for name, value in batch.items() if name != "token_type_ids" or takes_token_types(model)}
    with torch.no_grad():
        logits = language_model.eval().to(model.device)(**{n: v.to(model.device) for n, v in inputs.items()}).logits
    at_mask = logits[inputs["input_ids"].to(model.device) == model.mask_token]
    return at_mask[:, model.label_words]


def _check(
    temporary: Path,
    directory: Path,
    expected: torch.Tensor,
    model: Any,
    tokenizer: Any,
    batch: Mapping[str, torch.Tensor],
    max_length: int | None,
) -> None:
    from transformers import AutoTokenizer

    attention = model.config._attn_implementation
    if isinstance(model, PooledClassifier):
        inputs = {name: value for name, value in batch.items() if name != "token_type_ids" or takes_token_types(model)}
        found = logits_from(temporary, inputs, attention, model.device)
    elif isinstance(model, MaskClassifier):
        found = _logits_at_mask(temporary, batch, model)
    else:
        reloaded = _sequence_classifier().from_pretrained(
            temporary, local_files_only=True, use_safetensors=True, attn_implementation=attention
        )
        found = _logits(reloaded.to(model.device), batch)
    # A masked LM maps every position to its vocabulary, in products of another shape than at the mask alone.
    tolerance = 1e-5 if isinstance(model, MaskClassifier) else 0.0
    if found.shape != expected.shape or not torch.allclose(found, expected, rtol=tolerance, atol=tolerance):
        gap = (found - expected).abs().max().item() if found.shape == expected.shape else float("nan")
        raise ExportMismatch(
            "export-differs",
            f"export to {directory}: the reloaded model's logits differ from the trained model's by up to {gap:.3g} "
            "on the check batch; nothing was written. Something outside the plain weights acts in evaluation "
            "(a hook with always=True, a wrapped module), or the model is not in fp32.\n"
            "    -> correct the hook; until then the predictions are in work/evaluate",
        )
    again = AutoTokenizer.from_pretrained(temporary, local_files_only=True)
    same = again(*_PROBE)["input_ids"] == tokenizer(*_PROBE)["input_ids"]
    if max_length is not None:
        long = " ".join(_PROBE * max_length)
        cut = again(long, truncation=True)["input_ids"]
        same = same and cut == tokenizer(long, truncation=True, max_length=max_length)["input_ids"]
    if not same:
        raise ExportMismatch(
            "export-differs",
            f"export to {directory}: the reloaded tokenizer encodes differently; nothing was written\n"
            "    -> save the tokenizer with the installed transformers beside the weights, and train again",
        )
