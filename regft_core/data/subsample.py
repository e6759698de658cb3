"""Draw the training rows of (task, size, seed), once, for every method; no evaluation row takes part in it."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Sequence
from functools import cache
from pathlib import Path
from random import Random
from typing import Any, Literal

from regft_core.data.examples import Example, read_jsonl, text_key, to_jsonl
from regft_core.data.splits import of_seed, rows_file, set_files
from regft_core.disk.canonical import sha256_text
from regft_core.disk.files import atomic_directory, write_json, write_text
from regft_core.disk.reading import read_json
from regft_core.errors import DataError
from regft_core.kinds import find
from regft_core.rng import derive, shuffled

Size = int | Literal["full"]


def draw(
    labels: Sequence[int | float],
    size: Size,
    *,
    seed: int,
    task: str,
    stratified: bool = False,
    kind: str = "classification",
) -> list[int]:
    """Row indices in drawn order, without repetition; ``full`` is every row in source order.

    Unstratified draws of one (seed, task) nest. In stratified ones each group (``Kind.strata``) gets its share of
    ``size`` by largest remainder, and at least one row where ``size`` allows it. Raises DataError for a ``size`` above
    the rows.
    """
    n_total = len(labels)
    if size == "full":
        return list(range(n_total))
    if size > n_total:
        message, hint = f"task '{task}' has {n_total} training rows, fewer than size {size}", "lower it, or use 'full'"
        raise DataError("size-too-large", f"{message}\n    -> in params.yaml, {hint}")
    order = shuffled(range(n_total), Random(derive(seed, "subsample", task)))
    if not stratified:
        return order[:size]
    groups = find(kind).strata(labels)
    left = _quotas(Counter(groups), size)
    chosen = []
    for row in order:
        if left[groups[row]] > 0:
            left[groups[row]] -= 1
            chosen.append(row)
    return chosen


def _quotas(counts: Counter[int], size: int) -> dict[int, int]:
    """Rows per group: largest remainder, at least one each where ``size`` allows it."""
    total, groups = sum(counts.values()), sorted(counts)
    least = 1 if size >= len(groups) else 0
    quotas = {group: max(least, size * counts[group] // total) for group in groups}

    def short(group: int) -> int:
        """Return how far a group is below its exact share, in parts of ``total``."""
        return size * counts[group] - quotas[group] * total

    while sum(quotas.values()) < size:  # a group never gets more rows than it has
        quotas[max(groups, key=lambda g: (short(g), size * counts[g] % total, -g))] += 1
    while sum(quotas.values()) > size:
        quotas[max((g for g in groups if quotas[g] > least), key=lambda g: (-short(g), -g))] -= 1
    return quotas


def write_subsamples(
    root: Path,
    task: str,
    sizes: Sequence[Size],
    seeds: Sequence[int],
    stratified: bool = False,
    before_commit: Callable[[Path], None] | None = None,
) -> Path:
    """Write ``work/subsamples/<task>``: the rows of every size and seed, and ``manifest.json``. Raises DataError."""
    dataset = root / "work" / "datasets" / task
    described = read_json(dataset / "task.json")
    kind = find(described["kind"])

    @cache
    def rows_in(file: str) -> list[Example]:
        return read_jsonl(dataset / file)

    @cache
    def texts_in(file: str) -> Counter[str]:
        return Counter(text_key(example) for example in rows_in(file))

    def rows_of(size: Size, seed: int) -> list[Example]:
        train = rows_in(rows_file(of_seed(described, seed), "train"))
        labels = [example.label for example in train]
        chosen = draw(labels, size, seed=seed, task=task, stratified=stratified, kind=described["kind"])
        return [train[row] for row in chosen]

    drawn = {size: {seed: rows_of(size, seed) for seed in seeds} for size in sizes}
    sets = {seed: set_files(of_seed(described, seed)) for seed in seeds}
    out_dir = root / "work" / "subsamples" / task
    with atomic_directory(out_dir) as directory:
        for size, of_seeds in drawn.items():
            entries: dict[str, Any] = {}
            for seed, rows in of_seeds.items():
                content = to_jsonl(rows)
                write_text(directory / str(size) / f"seed-{seed}.jsonl", content)
                known = {text_key(example) for example in rows}
                entries[str(seed)] = {
                    "sha256": sha256_text(content),
                    "label_counts": kind.label_counts([row.label for row in rows], described["labels"] or ()),
                    "duplicates_with": {
                        name: sum(texts_in(file)[key] for key in known) for name, file in sets[seed].items()
                    },
                }
            manifest = {
                "task": task,
                "size": size,
                # Folds may differ by some rows.
                "n": min((len(rows) for rows in of_seeds.values()), default=0),
                "stratified": stratified,
                # Phases may read rows beyond the draw: a changed set must not look unchanged to DVC.
                "train_sha256": described["content"]["train"],
                "seeds": entries,
            }
            write_json(directory / str(size) / "manifest.json", manifest)
        if before_commit is not None:
            before_commit(directory)
    return out_dir
