"""Oddities of a task's rows that can be read all the same: counted in ``task.json``, with one warning each."""

from __future__ import annotations

import json
import re
import unicodedata
from collections import Counter, defaultdict
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from regft_core.data.examples import Example, excerpt, means_none, text_key
from regft_core.data.read_split import Split
from regft_core.errors import DataError
from regft_core.kinds import find
from regft_core.kinds._reading import to_number
from regft_core.names import listing, plural

#: Texts that one warning shows.
SHOWN = 3
#: Warnings of texts by their key in ``task.json``.
_WARNINGS = {
    "contradictions": "{rows} have a text that has another label elsewhere, for instance {texts}. Correct the labels, "
    "or remove the rows.",
    "wordless": "{rows} have a text without a letter or digit, for instance {texts}. Remove such rows if they say "
    "nothing.",
    "none": "the text of {rows} is {texts}, which programs write for a missing one. Empty these cells and set "
    "drop_empty: true to leave the rows out.",
}


def oddities(kind: str, labels: Sequence[str] | None, splits: Mapping[str, Split]) -> dict[str, Any]:
    """Count what is odd about the training and validation sets; only what occurs.

    ``contradictions``: rows whose text has another label elsewhere (not of values, which are rarely equal);
    ``wordless``: rows whose text has no letter and no digit; ``none``: rows whose text is a word for a missing one.
    Each has ``rows``, and the first ``examples``. ``spellings``: [[label, rows], ...] of labels that are probably one;
    ``none_labels``: of labels that are words for a missing one.
    """
    rows = [row for split in splits.values() for row in split.examples]
    labels_of = defaultdict(set)
    for row in rows:
        labels_of[text_key(row)].add(row.label)
    odd = {
        "contradictions": [row for row in rows if len(labels_of[text_key(row)]) > 1 and find(kind).has_labels],
        "wordless": [row for row in rows if any(not re.search(r"[^\W_]", text) for text in _texts(row))],
        "none": [row for row in rows if means_none(row.text)],
    }
    counts = find(kind).label_counts([row.label for row in rows], labels or ()) or {}
    found: dict[str, Any] = {name: {"rows": len(of), "examples": _shown(of)} for name, of in odd.items() if of}
    found["spellings"] = _same_labels(counts)
    found["none_labels"] = [[name, count] for name, count in counts.items() if means_none(name) and count]
    return {name: value for name, value in found.items() if value}


def _texts(row: Example) -> list[str]:
    return [text for text in (row.text, row.text_pair) if text is not None]


def _shown(rows: Sequence[Example]) -> list[str]:
    texts = dict.fromkeys(" | ".join(filter(None, _texts(row))) for row in rows)
    return [excerpt(text) for text in list(texts)[:SHOWN]]


def _same_labels(counts: Mapping[str, int]) -> list[list[list[Any]]]:
    """Return the labels that differ only in case, Unicode form, invisible characters or the spelling of a number.

    Each group is [[label, rows], ...], the most frequent first.
    """
    groups = defaultdict(list)
    for label, count in counts.items():
        folded = unicodedata.normalize("NFKC", label).casefold()
        visible = "".join(" " if c.isspace() else c for c in folded if unicodedata.category(c) not in ("Cf", "Cc"))
        number = to_number(visible)
        groups[" ".join(visible.split()) if number is None else repr(number)].append([label, count])
    return [sorted(group, key=lambda one: (-one[1], one[0])) for group in groups.values() if len(group) > 1]


def warnings_of(task: str, described: Mapping[str, Any]) -> Iterator[str]:
    """Yield a warning for each oddity that ``task.json`` counts, with examples and the remedy."""
    found, counts = described.get("oddities") or {}, described["counts"]
    for key, warning in _WARNINGS.items():
        if odd := found.get(key):
            texts = ", ".join(f"'{text}'" for text in odd["examples"])
            yield f"{task}: " + warning.format(rows=plural(odd["rows"], "row"), texts=texts)
    for name, rows in found.get("none_labels", ()):
        yield (
            f"{task}: {plural(rows, 'row')} have the label '{name}', which programs write for a missing one. It is a "
            f"class as it stands; drop_labels: [{json.dumps(name)}] leaves the rows out."
        )
    if groups := found.get("spellings"):
        yield _spelling_warning(task, described["labels"], groups)
    if scarce := (described.get("drawn") or {}).get("scarce"):
        have = "label has" if len(scarce) == 1 else "labels have"
        yield (
            f"{task}: {len(scarce)} {have} fewer rows than there are folds ({listing(scarce)}): some folds are scored "
            "without them. Label more such rows, or take fewer folds."
        )
    repeated = 0 if described.get("drawn") else described["duplicates"].get("dev", 0)
    if repeated:
        what = "all rows" if repeated == counts["dev"] else f"{repeated:,} of {counts['dev']:,} rows"
        yield (
            f"{task}: {what} of dev repeat the text of a training row, so scores on dev are too high. Remove them from "
            "one of the two files, or let regft split off dev: dev: {folds: 5}."
        )


def _spelling_warning(task: str, labels: Sequence[str], groups: Sequence[Sequence[Sequence[Any]]]) -> str:
    """Return the labels that are probably one with their rows, and how the task's YAML joins them."""
    spelled = "; ".join(
        " and ".join(f"{json.dumps(name)} ({plural(rows, 'row')})" for name, rows in of) for of in groups
    )
    into = {label: group[0][0] for group in groups for label, _ in group}
    values = json.dumps({label: into.get(label, label) for label in labels})
    return (
        f"{task}: labels that are probably one are several classes (rows): {spelled}. To join them, write in "
        f"pipelines/tasks/{task}.yaml: label_values: {values}, and list under labels those that stay."
    )


def require_contrast(where: str, kind: str, names: Sequence[str], rows: Split) -> None:
    """Raise DataError where there is nothing to learn: one row, or one label or value in all of them."""
    labels = Counter(row.label for row in rows.examples)
    if len(labels) > 1:
        return
    shown = find(kind).shown(next(iter(labels)), names)
    message = f"all {plural(len(rows.examples), 'training row')} have {shown!r}, so there is nothing to learn"
    raise DataError("one-class", f"{where}: {message}\n    -> add rows of other labels")
