"""The same rows for every method, drawn from the training split alone."""

from __future__ import annotations

import hashlib
import json
from collections import Counter
from pathlib import Path

from hypothesis import given
from hypothesis import strategies as st

from regft_core.data.examples import Example, read_jsonl, write_jsonl
from regft_core.data.subsample import draw, write_subsamples

label_lists = st.lists(st.integers(0, 6), min_size=1, max_size=80)
target_lists = st.lists(st.floats(0, 5), min_size=1, max_size=80)


@given(label_lists | target_lists, st.integers(1, 80), st.integers(0, 2**31 - 1), st.booleans())
def test_a_draw_has_the_asked_number_of_different_rows(
    labels: list[int | float], size: int, seed: int, stratified: bool
) -> None:
    n = len(labels)
    size = min(size, n)
    rows = draw(labels, size, seed=seed, task="t", stratified=stratified)
    assert len(set(rows)) == len(rows) == size
    assert set(rows) <= set(range(n))
    assert rows == draw(labels, size, seed=seed, task="t", stratified=stratified)


@given(label_lists, st.integers(1, 80), st.integers(0, 1000))
def test_stratified_shares_are_within_one_row_or_the_minimum_of_one(labels: list[int], size: int, seed: int) -> None:
    size = min(size, len(labels))
    counts = Counter(labels)
    rows = draw(labels, size, seed=seed, task="t", stratified=True)
    drawn = Counter(labels[row] for row in rows)
    exact = {label: size * count / len(labels) for label, count in counts.items()}
    if size >= len(counts):
        assert min(drawn[label] for label in counts) >= 1
    if all(share >= 1 for share in exact.values()):  # the minimum of one row moves nothing
        assert all(abs(drawn[label] - exact[label]) < 1 for label in counts)


def test_largest_remainder_by_hand() -> None:
    labels = [0] * 50 + [1] * 30 + [2] * 20
    rows = draw(labels, 7, seed=0, task="t", stratified=True)
    # shares 3.5, 2.1, 1.4: the two left go ... one only: 3 + 2 + 1 = 6, and 0 has the largest remainder
    assert Counter(labels[row] for row in rows) == {0: 4, 1: 2, 2: 1}
    rare = [0] * 99 + [1]
    assert Counter(rare[row] for row in draw(rare, 10, seed=0, task="t", stratified=True)) == {0: 9, 1: 1}


def test_stratified_regression_covers_the_scale() -> None:
    targets = [i / 200 for i in range(1000)]
    rows = draw(targets, 50, seed=3, task="t", stratified=True, kind="regression")
    assert Counter(int(targets[row] * 2) for row in rows) == dict.fromkeys(range(10), 5)


def test_unstratified_draws_nest_and_full_is_everything_in_order() -> None:
    labels = [0, 1] * 50
    whole = draw(labels, 100, seed=1, task="t")
    assert draw(labels, 30, seed=1, task="t") == whole[:30]
    assert sorted(whole) == draw(labels, "full", seed=1, task="t") == list(range(100))


def test_seeds_and_tasks_draw_differently_and_uniformly() -> None:
    labels = [0] * 20
    assert draw(labels, 10, seed=0, task="a") != draw(labels, 10, seed=1, task="a")
    assert draw(labels, 10, seed=0, task="a") != draw(labels, 10, seed=0, task="b")
    hits = Counter(row for seed in range(2000) for row in draw(labels, 5, seed=seed, task="a"))
    assert all(abs(hits[row] - 500) < 100 for row in range(20))  # five standard errors


def test_the_draw_never_changes_between_versions() -> None:
    assert draw([0] * 1000, 8, seed=0, task="sst2") == [739, 803, 679, 29, 261, 322, 972, 405]


def dataset(root: Path) -> Path:
    folder = root / "work" / "datasets" / "t"
    train = [Example(str(i), f"text {i // 2}", None, i % 2) for i in range(20)]
    write_jsonl(folder / "train.jsonl", train)
    write_jsonl(folder / "dev.jsonl", [Example("0", "text  3", None, 1), Example("1", "else", None, 0)])
    write_jsonl(folder / "ood" / "far.jsonl", [Example("0", f"text {i % 3}", None, 1) for i in range(9)])
    described = {
        "kind": "classification",
        "labels": ["no", "yes"],
        "sets": {"dev": {}, "far": {}},
        "content": {"train": "a hash"},
    }
    (folder / "task.json").write_text(json.dumps(described))
    return folder


def test_the_written_subsamples(tmp_path: Path) -> None:
    dataset(tmp_path)
    out = write_subsamples(tmp_path, "t", [20, 6], [0, 5])
    assert out == tmp_path / "work" / "subsamples" / "t"
    assert sorted(p.name for p in out.iterdir()) == ["20", "6"]
    for size in (20, 6):
        folder = out / str(size)
        assert sorted(p.name for p in folder.iterdir()) == ["manifest.json", "seed-0.jsonl", "seed-5.jsonl"]
        manifest = json.loads((folder / "manifest.json").read_text())
        assert {key: manifest[key] for key in ("task", "size", "n", "stratified", "train_sha256")} == {
            "task": "t", "size": size, "n": size, "stratified": False, "train_sha256": "a hash",
        }  # fmt: skip
        for seed in ("0", "5"):
            content = (folder / f"seed-{seed}.jsonl").read_bytes()
            assert manifest["seeds"][seed]["sha256"] == hashlib.sha256(content).hexdigest()
            order = [row.idx for row in read_jsonl(folder / f"seed-{seed}.jsonl")]
            assert order == [str(i) for i in draw([0, 1] * 10, size, seed=int(seed), task="t")]
    entry = json.loads((out / "20" / "manifest.json").read_text())["seeds"]["5"]
    assert entry["label_counts"] == {"no": 10, "yes": 10}
    assert entry["duplicates_with"] == {"dev": 1, "far": 9}
