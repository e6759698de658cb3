"""What is odd about the rows of a task though they can be read: counted in ``task.json``, said once by a warning."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from regft_core.data.declare import Split
from regft_core.data.examples import Example, text_key
from regft_core.errors import DataError
from regft_core.kinds import find
from regft_core.names import plural

#: Characters of a text that a warning shows, and texts of one remark.
WIDTH, SHOWN = 70, 3


def remarks(kind: str, splits: Mapping[str, Split]) -> dict[str, Any]:
    """What is odd about the sets that train and judge; only what occurs.

    ``contradictions``: rows whose text has another label elsewhere (of values none, which are rarely equal);
    ``wordless``: rows whose text has no letter and no digit; ``foreign_digits``: rows whose label is a number in other
    digits than 0 to 9. Each has ``rows``, and the first two ``examples``.
    """
    rows = [row for split in splits.values() for row in split.examples]
    labels = defaultdict(set)
    for row in rows:
        labels[text_key(row)].add(row.label)
    odd = {
        "contradictions": [row for row in rows if len(labels[text_key(row)]) > 1 and find(kind).has_labels],
        "wordless": [row for row in rows if not _has_words(row)],
    }
    found: dict[str, Any] = {name: {"rows": len(of), "examples": _texts(of)} for name, of in odd.items() if of}
    if foreign := sum(split.foreign_digits for split in splits.values()):
        found["foreign_digits"] = {"rows": foreign}
    return found


def remark_warnings(task: str, described: Mapping[str, Any]) -> Iterator[str]:
    """A line for each thing that ``task.json`` remarks, with examples and the remedy."""
    found, counts = described.get("remarks") or {}, described["counts"]
    if one := found.get("contradictions"):
        yield (
            f"{task}: {plural(one['rows'], 'row')} have a text that has another label elsewhere, for instance "
            f"{_listed(one)}. Correct the labels, or remove the rows."
        )
    if one := found.get("wordless"):
        yield (
            f"{task}: {plural(one['rows'], 'row')} have a text without a letter or digit, for instance "
            f"{_listed(one)}. Remove such rows if they say nothing."
        )
    if one := found.get("foreign_digits"):
        yield (
            f"{task}: {plural(one['rows'], 'row')} have a label in other digits than 0 to 9, read as a number. "
            "List them under label_values if they mean something else."
        )
    repeated = 0 if described.get("drawn") else described["duplicates"].get("dev", 0)
    if repeated:
        what = "all rows" if repeated == counts["dev"] else f"{repeated:,} of {counts['dev']:,} rows"
        yield (
            f"{task}: {what} of dev repeat the text of a training row, so scores on dev are too high. Remove them from "
            "one of the two files, or let regft draw dev: dev: {folds: 5}."
        )


def require_contrast(where: str, kind: str, names: Sequence[str], rows: Split) -> None:
    """Raise DataError where there is nothing to learn: one row, or one label or value in all of them."""
    labels = Counter(row.label for row in rows.examples)
    if len(labels) > 1:
        return
    (label,) = labels
    what, remedy = f"all {len(rows.examples)} training rows have", "add rows of other labels"
    if len(rows.examples) == 1:
        what, remedy = "there is one training row, with", "a few hundred rows are a good start"
    shown = find(kind).shown(label, names)
    named = f"the label '{shown}'" if isinstance(shown, str) else f"the value {shown:g}"
    raise DataError("one-class", f"{where}: {what} {named}, so there is nothing to learn\n    -> {remedy}")


def _has_words(row: Example) -> bool:
    return all(any(c.isalnum() for c in text) for text in (row.text, row.text_pair) if text is not None)


def _texts(rows: Sequence[Example]) -> list[str]:
    texts = dict.fromkeys(" | ".join(part for part in (row.text, row.text_pair) if part) for row in rows)
    return [text if len(text) <= WIDTH else text[:WIDTH] + "..." for text in list(texts)[:SHOWN]]


def _listed(one: Mapping[str, Any]) -> str:
    return ", ".join(f"'{text}'" for text in one["examples"])
