"""The README.md of an exported model, with code that loads it without regft."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from regft_core.kinds import find

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

_AT_MASK = """from transformers import AutoModelForMaskedLM, AutoTokenizer
import torch

path = "path/to/this/directory"
tokenizer, model = AutoTokenizer.from_pretrained(path), AutoModelForMaskedLM.from_pretrained(path).eval()
words = tokenizer.convert_tokens_to_ids({words!r})
text = {template!r}.replace("[MASK]", tokenizer.mask_token).replace("{{text}}", "a text")
batch = tokenizer(text, return_tensors="pt")
with torch.no_grad():
    logits = model(**batch).logits[batch["input_ids"] == tokenizer.mask_token_id][:, words]
print(logits.softmax(-1))"""

_BATCH = """texts = ["a text"]  # for pairs two lists: tokenizer(firsts, seconds, ...)
batch = tokenizer(texts, padding=True, truncation=True, return_tensors="pt")"""
_PAIRS = """texts = ["first text", "second text"]  # of every pair the two texts, one after the other
batch = tokenizer(texts, padding=True, truncation=True, return_tensors="pt")"""
_POOL = {
    ("mean", "first"): "    vectors = (tokens * mask[..., None]).sum(1) / mask.sum(1, keepdim=True)",
    ("unit_mean", "first"): "    vectors = (tokens * mask[..., None]).sum(1)  # the mean, up to its length\n"
    "    vectors = vectors / vectors.norm(dim=1, keepdim=True)",
    ("cls", "first"): "    vectors = tokens[torch.arange(len(mask)), mask.argmax(1)]  # the first real token",
    ("cls", "last"): "    vectors = tokens[torch.arange(len(mask)), mask.cumsum(1).argmax(1)]  # the last real token",
}
_FEATURES = """
    vectors = vectors / vectors.pow(2).mean(-1, keepdim=True).sqrt()  # lengths do not count
    u, v = vectors[0::2], vectors[1::2]
    vectors = torch.cat([u, v, (u - v).abs(), u * v], -1)"""

_SENTENCE_TRANSFORMERS = """from sentence_transformers import SentenceTransformer

logits = SentenceTransformer("path/to/this/directory").encode(["a text"])  # logits, not an embedding"""


def model_card(facts: Mapping[str, Any]) -> str:
    """Render a model card (Markdown with the hub's metadata header) from plain facts.

    Args:
        facts: all optional. What it is: ``mark`` (what it is not, said first), ``name``, ``method``, ``description``,
            ``paper``, ``base_model`` and ``revision``, ``task``, ``kind``, ``labels``, ``max_length``, ``seed``,
            ``run_key``. Data: ``train_rows``, ``train_total``, ``train_labels`` {label: rows}, ``fold`` and ``source``,
            ``columns`` {what: column}. ``scores``: a list of {"set", "metric", "value", "mean", "low", "high",
            "runs"}, where ``value`` is this run's and the others are over all runs (absent: not reported yet), with
            ``confidence`` (0.95) for all of them. Of a model that was trained on all labelled rows there is no
            ``value``: ``rows`` says which these are, ``expected`` {title: text} what its scores were estimated from.
            ``compared``: the report's sentences on the method. ``cost`` {title: text}; ``limits`` (list of sentences);
            ``training`` {name: value}; ``versions`` {package: version}. ``pooling`` (head), ``summary`` (first)
            and ``rows_per_example`` (1) decide how the model is loaded, ``prompt`` (that of ``regft.json``) how texts
            stand before it; ``instruction``, ``windows`` and ``stride`` are those of ``regft.json``.
            ``answered_by``: the regulariser that answers where there is no model to load.
    """
    pooled = facts.get("pooling", "head") not in ("head", "mask")
    lines = [*_header(facts, pooled), *_summary(facts)]
    sections: list[tuple[str, list[str]]] = [
        ("Data", _items(_data(facts))),
        ("Scores", _scores(facts)),
        ("Compared", [f"- {text}" for text in facts.get("compared") or ()]),
        ("Cost", _items((facts.get("cost") or {}).items())),
        ("Limits", [f"- {text}" for text in facts.get("limits") or ()]),
        ("Use", [*_predict(facts), *_use(facts, pooled)]),
        ("Training", [f"- {key}: {value}" for key, value in sorted((facts.get("training") or {}).items())]),
        ("Versions", [f"- {key}: {value}" for key, value in sorted((facts.get("versions") or {}).items())]),
    ]
    for title, content in sections:
        if content:
            lines += ["", f"## {title}", "", *content]
    return "\n".join([*lines, ""])


def _header(facts: Mapping[str, Any], pooled: bool) -> list[str]:
    header = ["---", "pipeline_tag: text-classification"]
    if not facts.get("answered_by"):
        header.insert(1, f"library_name: {'sentence-transformers' if pooled else 'transformers'}")
    if facts.get("base_model"):
        header.append(f"base_model: {_quoted(facts['base_model'])}")
    return [*header, "tags: [regft]", "---", ""]


def _summary(facts: Mapping[str, Any]) -> list[str]:
    name = str(facts.get("name") or "Fine-tuned classifier")
    method = f"Fine-tuned with regft, method `{facts['method']}`." if facts.get("method") else "Fine-tuned with regft."
    rows = [
        ("Base model", _join(facts.get("base_model"), facts.get("revision"), " at ")),
        ("Paper", facts.get("paper")),
        ("Task", _join(facts.get("task"), facts.get("kind"), ", ")),
        ("Labels", ", ".join(f"{i} = {label}" for i, label in enumerate(facts.get("labels") or ()))),
        ("Longest input", f"{facts['max_length']} tokens{_beyond(facts)}" if facts.get("max_length") else None),
        ("Before every text", f"`{facts['instruction']!r}`" if facts.get("instruction") else None),
        ("Seed", facts.get("seed")),
        ("Run", facts.get("run_key")),
    ]
    text = " ".join([method, str(facts.get("description") or "")]).strip()
    mark = [f"> **{facts['mark']}**", ""] if facts.get("mark") else []
    return [f"# {name}", "", *mark, text, "", *_items(rows)]


def _beyond(facts: Mapping[str, Any]) -> str:
    windows = facts.get("windows", 1)
    if windows == 1:
        return "; what is longer is cut"
    return f"; a longer text is read in up to {windows} windows that share {facts.get('stride', 0)} tokens"


def _items(rows: Iterable[tuple[str, Any]]) -> list[str]:
    return [f"- **{title}**: {value}" for title, value in rows if value not in (None, "")]


def _data(facts: Mapping[str, Any]) -> list[tuple[str, Any]]:
    rows = facts.get("train_rows")
    total = facts.get("train_total")
    drawn = f": {facts['rows']}" if facts.get("rows") else ""
    if rows and total and total != rows:
        drawn = f" of {total:,}, drawn with seed {facts.get('seed')}"
    labels = ", ".join(f"{label} {count:,}" for label, count in (facts.get("train_labels") or {}).items())
    columns = ", ".join(f"{what} `{name}`" for what, name in (facts.get("columns") or {}).items() if name)
    return [
        ("Training rows", f"{rows:,}{drawn}" if rows else None),
        ("Fold", facts.get("fold")),
        ("Labels of the training rows", labels),
        ("Columns", columns),
        ("Source", facts.get("source")),
    ]


def _scores(facts: Mapping[str, Any]) -> list[str]:
    scores: Sequence[Mapping[str, Any]] = facts.get("scores") or ()
    if not scores:
        return []
    confidence, expected = facts.get("confidence"), facts.get("expected")
    interval = f"{confidence:.0%} interval" if confidence else "interval"
    own = ["Mean of the judged runs"] if expected else ["This model", "Mean of all seeds"]
    head = ["Set", "Metric", *own, interval, "Seeds"]
    table = [_line(head), "|" + "---|" * len(head)]
    for score in scores:
        bounds = ""
        if score.get("low") is not None and score.get("high") is not None:
            bounds = f"{score['low']:.4f} to {score['high']:.4f}"
        value = "failed" if score.get("value") is None else f"{score['value']:.4f}"
        mean = "" if score.get("mean") is None else f"{score['mean']:.4f}"
        runs = "" if score.get("runs") is None else score["runs"]
        table.append(_line([score["set"], score["metric"], *([] if expected else [value]), mean, bounds, runs]))
    text = "`dev` is in distribution, every other set is not. "
    if expected:
        text += "These are scores of the judged runs. No set judged this model, and nothing was selected by it."
        return [*_items(expected.items()), "", *table, "", text]
    text += "Nothing was selected: the last step of this seed."
    if any(score.get("mean") is None for score in scores):
        text += (
            " Means and intervals over the seeds were not there when this model was exported: run `dvc repro` first."
        )
    return [*table, "", text]


def _line(cells: Sequence[Any]) -> str:
    return f"| {' | '.join(map(str, cells))} |"


def _predict(facts: Mapping[str, Any]) -> list[str]:
    columns = facts.get("columns") or {}
    named = " and ".join(f"`{name}`" for what, name in columns.items() if name and what != "label")
    return [
        "With regft, for a whole file" + (f" (columns {named}; others: `--text`, `--text-pair`):" if named else ":"),
        "",
        "```sh",
        "regft predict --model path/to/this/directory --data new.csv --out predictions.csv",
        "```",
        "",
    ]


def _use(facts: Mapping[str, Any], pooled: bool) -> list[str]:
    if answered_by := facts.get("answered_by"):
        return [
            f"There is no network to load: `kept.safetensors` holds all that `{answered_by}` has fitted (terms and",
            "numbers, no code), `regft.json` how its inputs are read. No encoder is read, and no text is cut.",
        ]
    if prompt := facts.get("prompt"):
        code = _AT_MASK.format(words=list(prompt["tokens"]), template=prompt["template"])
        more = " and averages over its sets of demonstrations" if prompt.get("demonstrations") else ""
        return [
            "This is a masked language model. A text stands in the template of `regft.json`; the logits are those of",
            f"the labels' words at the mask. `regft predict` also cuts long texts, never the template{more}.",
            "With transformers, for a short text:",
            "",
            *_code(code),
        ]
    return _pooled_use(facts) if pooled else ["With transformers:", "", *_code(_pipeline(facts))]


def _pipeline(facts: Mapping[str, Any]) -> str:
    """The code; a pipeline gives the best label alone unless it is asked for all."""
    kind = find(facts["kind"]) if facts.get("kind") else None
    every = kind is not None and kind.has_labels and not kind.one_label
    return _PIPELINE.replace("truncation=True", "truncation=True, top_k=None") if every else _PIPELINE


def _pooled_use(facts: Mapping[str, Any]) -> list[str]:
    separate = facts.get("rows_per_example", 1) == 2
    mean = facts["pooling"] in ("mean", "unit_mean")
    how = (facts["pooling"], "first") if mean else ("cls", str(facts.get("summary", "first")))
    code = _POOLED.format(
        head="pair_head" if separate else "2_Dense",
        batch=_instructed(_PAIRS if separate else _BATCH, facts),
        pool=_POOL[how] + (_FEATURES if separate else ""),
        answer=f"print({find(facts['kind']).printed})",
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
    if facts.get("windows", 1) > 1:
        lines += ["This code reads the first window of a long text. `regft predict` averages over all of them.", ""]
    if separate:
        return [*lines, "sentence-transformers loads encoder and pooling, which give u and v, but not the head."]
    return [*lines, "With sentence-transformers:", "", *_code(_SENTENCE_TRANSFORMERS)]


def _instructed(code: str, facts: Mapping[str, Any]) -> str:
    """The lines that tokenise, with the instruction before every text (of a pair in one input: before the first)."""
    if not (instruction := facts.get("instruction")):
        return code
    return code.replace("\nbatch", f"\ntexts = [{str(instruction)!r} + text for text in texts]\nbatch", 1)


def _code(text: str) -> list[str]:
    return ["```python", *text.splitlines(), "```"]


def _join(first: Any, second: Any, between: str) -> str:
    return between.join(str(part) for part in (first, second) if part not in (None, ""))


def _quoted(text: Any) -> str:
    return '"' + str(text).replace("\\", "\\\\").replace('"', '\\"') + '"'
