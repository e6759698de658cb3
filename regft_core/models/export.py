"""Write a fine-tuned model as an ordinary transformers directory that needs nothing of regft.

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
from regft_core.io import atomic_directory
from regft_core.models.load import quiet
from regft_core.models.sites import classify

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
    config = copy.deepcopy(model.config)
    with quiet(), torch.random.fork_rng(devices=[]):
        plain = _sequence_classifier().from_config(config, attn_implementation=model.config._attn_implementation)
    wrong = plain.load_state_dict({name: value.to("cpu") for name, value in state.items()}, strict=False)
    if wrong.missing_keys or wrong.unexpected_keys:
        raise ModelError(
            f"export: the model does not fold into a plain {type(plain).__name__}: "
            f"left over {wrong.unexpected_keys[:5]}, missing {wrong.missing_keys[:5]}. "
            "A method keeps parameters of its own outside the model, or folds them into its weights when it finishes."
        )
    return plain.eval()


def export_model(
    model: Any, tokenizer: Any, directory: Path, *, card: str, check_batch: Mapping[str, torch.Tensor]
) -> Path:
    """Write weights (safetensors), configuration, tokenizer and model card; return ``directory``.

    The directory appears complete or not at all; an earlier export under the same name is
    replaced in one step.

    Args:
        model: fine-tuned classifier, possibly parametrized and with hooks; it is not changed.
        card: text of README.md, see ``model_card``.
        check_batch: model inputs (tensors [B, n]) on which the written model must agree.

    Raises:
        ExportMismatch: the reloaded model or tokenizer differs; nothing is left behind.
        ModelError: the model cannot be folded, or ``directory`` holds something else than a model.
        StoreError: the directory cannot be written.
    """
    directory = Path(directory)
    foreign = directory.exists() and not (directory / "config.json").is_file()
    if foreign and not (directory.is_dir() and not any(directory.iterdir())):
        raise ModelError(f"export: {directory} exists and is not a model directory; choose another or remove it")
    expected = _logits(model, check_batch)
    plain = fold(model)
    with atomic_directory(directory) as temporary, quiet():
        plain.save_pretrained(temporary)
        tokenizer.save_pretrained(temporary)
        (temporary / "README.md").write_text(card, encoding="utf-8")
        _check(temporary, directory, expected, model, tokenizer, check_batch)
    return directory


def model_card(facts: Mapping[str, Any]) -> str:
    """Render a model card (Markdown with the hub's metadata header) from plain facts.

    Args:
        facts: all optional: ``name``, ``method``, ``description``, ``paper``, ``base_model`` and ``revision``,
            ``task``, ``kind``, ``labels``, ``train_rows``, ``seed``, ``run_key``, ``notes`` (list of str),
            ``versions`` {package: version}, ``training`` {name: value}, and ``scores``: a list of
            {"set", "metric", "value", "low", "high", "runs"}, where low and high bound the confidence interval
            over runs (absent: none is shown), with ``confidence`` (0.95) for all of them.
    """
    name = str(facts.get("name") or "Fine-tuned classifier")
    header = ["---", "library_name: transformers", "pipeline_tag: text-classification"]
    if facts.get("base_model"):
        header.append(f"base_model: {_quoted(facts['base_model'])}")
    header += ["tags: [regft]", "---", ""]
    lines = [*header, f"# {name}", ""]
    method = f"Fine-tuned with regft, method `{facts['method']}`." if facts.get("method") else "Fine-tuned with regft."
    lines += [" ".join([method, str(facts.get("description") or "")]).strip(), ""]
    rows = [
        ("Base model", _join(facts.get("base_model"), facts.get("revision"), " at ")),
        ("Paper", facts.get("paper")),
        ("Task", _join(facts.get("task"), facts.get("kind"), ", ")),
        ("Labels", ", ".join(f"{i} = {label}" for i, label in enumerate(facts.get("labels") or ()))),
        ("Training rows", facts.get("train_rows")),
        ("Seed", facts.get("seed")),
        ("Run", facts.get("run_key")),
    ]
    lines += [f"- **{title}**: {value}" for title, value in rows if value not in (None, "")]
    if facts.get("scores"):
        lines += ["", "## Scores", "", *_score_table(facts["scores"], facts.get("confidence"))]
    for title, key in (("Training", "training"), ("Versions", "versions")):
        if facts.get(key):
            lines += ["", f"## {title}", "", *(f"- {k}: {v}" for k, v in sorted(facts[key].items()))]
    if facts.get("notes"):
        lines += ["", "## Notes", "", *(f"- {note}" for note in facts["notes"])]
    lines += ["", "## Use", "", "```python", "from transformers import pipeline", ""]
    lines += ['classifier = pipeline("text-classification", model="path/to/this/directory")']
    lines += ['classifier("a text")  # for pairs: {"text": ..., "text_pair": ...}', "```", ""]
    return "\n".join(lines)


def _score_table(scores: list[Mapping[str, Any]], confidence: float | None) -> list[str]:
    interval = f"{confidence:.0%} interval" if confidence else "interval"
    table = [f"| Set | Metric | Score | {interval} | Runs |", "|---|---|---|---|---|"]
    for score in scores:
        bounds = ""
        if score.get("low") is not None and score.get("high") is not None:
            bounds = f"{score['low']:.4f} to {score['high']:.4f}"
        value = "failed" if score.get("value") is None else f"{score['value']:.4f}"
        table.append(f"| {score['set']} | {score['metric']} | {value} | {bounds} | {score.get('runs', '')} |")
    return table


def _join(first: Any, second: Any, between: str) -> str:
    return between.join(str(part) for part in (first, second) if part not in (None, ""))


def _quoted(text: Any) -> str:
    return '"' + str(text).replace("\\", "\\\\").replace('"', '\\"') + '"'


def _sequence_classifier() -> Any:
    from transformers import AutoModelForSequenceClassification

    return AutoModelForSequenceClassification


def _logits(model: Any, batch: Mapping[str, torch.Tensor]) -> torch.Tensor:
    training = model.training
    model.eval()
    try:
        with torch.no_grad():
            return classify(model, {name: value.to(model.device) for name, value in batch.items()})[0]
    finally:
        model.train(training)


def _check(
    temporary: Path,
    directory: Path,
    expected: torch.Tensor,
    model: Any,
    tokenizer: Any,
    batch: Mapping[str, torch.Tensor],
) -> None:
    from transformers import AutoTokenizer

    attention = model.config._attn_implementation
    reloaded = _sequence_classifier().from_pretrained(
        temporary, local_files_only=True, use_safetensors=True, attn_implementation=attention
    )
    found = _logits(reloaded.to(model.device), batch)
    if not torch.equal(found, expected):
        gap = (found - expected).abs().max().item() if found.shape == expected.shape else float("nan")
        raise ExportMismatch(
            f"export to {directory}: the reloaded model's logits differ from the trained model's by up to {gap:.3g} "
            "on the check batch; nothing was written. Something outside the plain weights acts in evaluation "
            "(a hook with always=True, a wrapped module), or the model is not in fp32."
        )
    again = AutoTokenizer.from_pretrained(temporary, local_files_only=True)
    if again(*_PROBE)["input_ids"] != tokenizer(*_PROBE)["input_ids"]:
        raise ExportMismatch(f"export to {directory}: the reloaded tokenizer encodes differently; nothing was written")
