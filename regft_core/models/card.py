"""The README.md of an exported model, with code that loads it without regft."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

_PIPELINE = """from transformers import pipeline

classifier = pipeline("text-classification", model="path/to/this/directory", truncation=True)
classifier("a text")  # for pairs: {"text": ..., "text_pair": ...}"""

_POOLED = """from pathlib import Path
import torch
from safetensors.torch import load_file
from transformers import AutoModel, AutoTokenizer

path = Path("path/to/this/directory")
tokenizer, encoder = AutoTokenizer.from_pretrained(path), AutoModel.from_pretrained(path).eval()
head = load_file(path / "{head}" / "model.safetensors")
{batch}
with torch.no_grad():
    tokens, mask = encoder(**batch).last_hidden_state, batch["attention_mask"]
{pool}
    logits = torch.nn.functional.linear(vectors, head["linear.weight"], head["linear.bias"])
{answer}"""

_BATCH = """texts = ["a text"]  # for pairs two lists: tokenizer(firsts, seconds, ...)
batch = tokenizer(texts, padding=True, truncation=True, return_tensors="pt")"""
_PAIRS = """texts = ["first text", "second text"]  # of every pair the two texts, one after the other
batch = tokenizer(texts, padding=True, truncation=True, return_tensors="pt")"""
_POOL = {
    ("mean", "first"): "    vectors = (tokens * mask[..., None]).sum(1) / mask.sum(1, keepdim=True)",
    ("cls", "first"): "    vectors = tokens[torch.arange(len(mask)), mask.argmax(1)]  # the first real token",
    ("cls", "last"): "    vectors = tokens[torch.arange(len(mask)), mask.cumsum(1).argmax(1)]  # the last real token",
}
_FEATURES = """
    u, v = vectors[0::2], vectors[1::2]
    vectors = torch.cat([u, v, (u - v).abs(), u * v], -1)"""

_SENTENCE_TRANSFORMERS = """from sentence_transformers import SentenceTransformer

logits = SentenceTransformer("path/to/this/directory").encode(["a text"])  # logits, not an embedding"""


def model_card(facts: Mapping[str, Any]) -> str:
    """Render a model card (Markdown with the hub's metadata header) from plain facts.

    Args:
        facts: all optional: ``name``, ``method``, ``description``, ``paper``, ``base_model`` and ``revision``,
            ``task``, ``kind``, ``labels``, ``train_rows``, ``seed``, ``run_key``, ``notes`` (list of str),
            ``versions`` {package: version}, ``training`` {name: value}, and ``scores``: a list of
            {"set", "metric", "value", "low", "high", "runs"}, where low and high bound the confidence interval
            over runs (absent: none is shown), with ``confidence`` (0.95) for all of them. ``pooling`` (head),
            ``summary`` (first) and ``rows_per_example`` (1) decide how the model is loaded; ``max_length`` is shown.
    """
    pooled = facts.get("pooling", "head") != "head"
    name = str(facts.get("name") or "Fine-tuned classifier")
    library = "sentence-transformers" if pooled else "transformers"
    header = ["---", f"library_name: {library}", "pipeline_tag: text-classification"]
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
        ("Longest input", f"{facts['max_length']} tokens" if facts.get("max_length") else None),
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
    lines += ["", "## Use", "", *(_pooled_use(facts) if pooled else _code(_PIPELINE)), ""]
    return "\n".join(lines)


def _pooled_use(facts: Mapping[str, Any]) -> list[str]:
    separate = facts.get("rows_per_example", 1) == 2
    summary = str(facts.get("summary", "first")) if facts["pooling"] == "cls" else "first"
    answer = "print([encoder.config.id2label[best] for best in logits.argmax(-1).tolist()])"
    if facts.get("kind") == "regression":
        answer = "print(logits.squeeze(-1).tolist())"
    code = _POOLED.format(
        head="pair_head" if separate else "2_Dense",
        batch=_PAIRS if separate else _BATCH,
        pool=_POOL[facts["pooling"], summary] + (_FEATURES if separate else ""),
        answer=answer,
    )
    lines = [
        "The encoder is at the top of this directory (`AutoModel`), the head in a folder of its own. Do not load this",
        "with `AutoModelForSequenceClassification` or a `text-classification` pipeline: they would draw a new head.",
        "A message about a newly initialised `pooler` is of no concern: nothing here uses one.",
        "With transformers:",
        "",
        *_code(code),
        "",
    ]
    if separate:
        return [*lines, "sentence-transformers loads encoder and pooling, which give u and v, but not the head."]
    return [*lines, "With sentence-transformers:", "", *_code(_SENTENCE_TRANSFORMERS)]


def _code(text: str) -> list[str]:
    return ["```python", *text.splitlines(), "```"]


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
