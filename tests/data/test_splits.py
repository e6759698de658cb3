from __future__ import annotations

import csv
import json
from collections import Counter, defaultdict
from pathlib import Path
from random import Random
from typing import Any

import pytest

from regft_core.data.checks import warnings_of
from regft_core.data.examples import divide, read_jsonl
from regft_core.data.prepare import prepare_dataset
from regft_core.data.splits import fold_line, of_seed, rows_file, split_line
from regft_core.data.subsample import write_subsamples
from regft_core.errors import DataError
from regft_core.schema.tasks import TaskConfig
from tests.errors import raises_code
from tests.small_project import TASK

WORDS = ["alpha", "beta", "gamma", "delta", "epsilon", "zeta", "eta", "theta", "iota", "kappa", "mu", "nu", "xi", "pi"]
DECLARED: dict[str, Any] = {**TASK, "columns": {"text": "text"}, "ood": {}}


def rows(count: int = 60, groups: int = 12) -> list[dict[str, Any]]:
    """Different texts, two of three of them good; the group is the row modulo ``groups``."""
    return [
        {
            "text": " ".join(Random(row).choices(WORDS, k=8)) + f" {row}",
            "label": "bad" if row % 3 == 0 else "good",
            "product": f"p{row % groups}",
        }
        for row in range(count)
    ]


def prepare(
    root: Path,
    dev: Any,
    content: list[dict[str, Any]] | None = None,
    group: str | None = None,
    name: str = "mine",
    **changes: Any,
) -> tuple[Path, dict[str, Any]]:
    content = rows() if content is None else content
    (root / "data").mkdir(parents=True, exist_ok=True)
    with (root / "data" / "rows.csv").open("w", newline="") as file:
        writer = csv.DictWriter(file, list(content[0]))
        writer.writeheader()
        writer.writerows(content)
    declared = DECLARED | {"splits": {"train": "rows.csv", "dev": dev}, "columns": {"text": "text", "group": group}}
    declared |= changes
    folder = prepare_dataset(root, name, {name: TaskConfig.model_validate(declared)})
    return folder, json.loads((folder / "task.json").read_text())


def parts(folder: Path, described: dict[str, Any], seed: int) -> tuple[list[str], list[str]]:
    seen = of_seed(described, seed)
    train, dev = ([row.idx for row in read_jsonl(folder / rows_file(seen, name))] for name in ("train", "dev"))
    assert (seen["counts"]["train"], seen["counts"]["dev"]) == (len(train), len(dev))
    assert seen["sets"]["dev"]["n"] == len(dev)
    return train, dev


@pytest.mark.parametrize("group", [None, "product"])
def test_each_row_judges_once_per_repeat_a_model_that_has_not_seen_it(tmp_path: Path, group: str | None) -> None:
    content = rows()
    folder, described = prepare(tmp_path, {"folds": 4, "repeats": 2}, content, group)
    dealt = []
    for repeat in range(2):
        judged: Counter[str] = Counter()
        for fold in range(4):
            train, dev = parts(folder, described, 4 * repeat + fold)
            assert not set(train) & set(dev)
            assert len(train) + len(dev) == 60
            if group:
                products = [{content[int(idx)]["product"] for idx in side} for side in (train, dev)]
                assert not products[0] & products[1]
            assert sum(content[int(idx)]["label"] == "bad" for idx in dev) == pytest.approx(5, abs=1 if group else 0)
            judged.update(dev)
            dealt.append(dev)
        assert judged == Counter({str(row): 1 for row in range(60)})
    assert dealt[:4] != dealt[4:]
    assert described["counts"] == {"train": 45, "dev": 60}
    assert (folder / "groups.json").is_file() == bool(group)
    assert "4 folds x 2 repeats of 60 rows, 15 rows a fold" in split_line(described)
    assert "fold 1 of repeat 1" in (fold_line(of_seed(described, 5), 5) or "")
    with raises_code(DataError, "no-such-fold", "seed 8", "0 to 7"):
        of_seed(described, 8)
    with raises_code(DataError, "no-such-fold"):
        rows_file(described, "train")


@pytest.mark.parametrize("dev", [{"folds": 4}, 0.25])
@pytest.mark.parametrize("group", [None, "product"])
def test_folds_are_those_of_the_texts_whatever_their_order_and_the_name(
    tmp_path: Path, dev: Any, group: str | None
) -> None:
    def texts(folder: str, content: list[dict[str, Any]], name: str) -> set[str]:
        made = prepare(tmp_path / folder, dev, content, group, name)
        return {content[int(idx)]["text"] for idx in parts(*made, 1)[1]}

    shuffled = Random(1).sample(rows(), 60)
    assert texts("as-it-is", rows(), "mine") == texts("shuffled", shuffled, "renamed")


def test_rows_of_one_text_are_in_one_fold(tmp_path: Path) -> None:
    content = rows(30) + rows(30)
    folder, described = prepare(tmp_path, {"folds": 3}, content)
    for seed in range(3):
        train, dev = ({content[int(idx)]["text"] for idx in side} for side in parts(folder, described, seed))
        assert not train & dev
    assert described["leaks"]["near"]["rows"] == 0
    assert "dev" not in described["duplicates"]


@pytest.mark.parametrize("group", [None, "product"])
def test_a_share_is_drawn_once_for_all_seeds(tmp_path: Path, group: str | None) -> None:
    content = [*rows(), {**rows()[0], "text": ""}]
    folder, described = prepare(tmp_path, 0.25, content, group, drop_empty=True)
    assert described["dropped"] == {"train": {"without text": 1}}
    train, dev = parts(folder, described, 0)
    assert (train, dev) == parts(folder, described, 7)
    assert (len(train), len(dev)) == (45, 15)
    assert not set(train) & set(dev)
    if group:
        assert {content[int(idx)]["product"] for idx in dev}.isdisjoint(content[int(idx)]["product"] for idx in train)
        assert set(json.loads((folder / "groups.json").read_text())["dev"]) == set(dev)
    assert "15 of 60 rows" in split_line(described)


def test_sizes_are_drawn_from_the_rows_that_train_the_fold(tmp_path: Path) -> None:
    folder, described = prepare(tmp_path, {"folds": 4})
    out = write_subsamples(tmp_path, "mine", [10, "full"], [0, 1, 2, 3])
    for seed in range(4):
        train, dev = parts(folder, described, seed)
        few = [row.idx for row in read_jsonl(out / "10" / f"seed-{seed}.jsonl")]
        assert len(few) == 10
        assert set(few) <= set(train)
        assert not set(few) & set(dev)
        assert [row.idx for row in read_jsonl(out / "full" / f"seed-{seed}.jsonl")] == train
    assert json.loads((out / "full" / "manifest.json").read_text())["n"] == 45
    with raises_code(DataError, "size-too-large", 45):
        write_subsamples(tmp_path, "mine", [50], [0])


def test_what_cannot_be_split_is_refused_with_its_place(tmp_path: Path) -> None:
    few = [row | {"label": "bad" if number < 3 else "good"} for number, row in enumerate(rows())]
    large = [row | {"product": "p" if number < 40 else str(number)} for number, row in enumerate(rows())]
    without = [row | {"product": "p" if number != 1 else ""} for number, row in enumerate(rows())]
    for dev, content, group, code, words in (
        (0.1, few, None, "class-missing", "'bad'"),
        ({"folds": 2}, rows(groups=1), "product", "too-few-groups", "1 group for 2 parts"),
        ({"folds": 5}, rows(groups=3), "product", "too-few-groups", "3 groups for 5 parts"),
        ({"folds": 3}, large, "product", "group-too-large", "'p' holds 40 of 60"),
        ({"folds": 2}, without, "product", "rows-do-not-match", "row 2"),
    ):
        with raises_code(DataError, code, words):
            prepare(tmp_path, dev, content, group)
    task = TaskConfig.model_validate({**DECLARED, "splits": {"train": "rows.csv", "dev": {"folds": 70}}})
    _, described = prepare(tmp_path / "few", {"folds": 5}, few)  # folds may lack a class that has fewer rows
    assert described["drawn"]["scarce"] == ["bad"]
    assert any("bad" in line for line in warnings_of("mine", described))
    with raises_code(DataError, "class-missing", "mine.yaml:4"):
        prepare_dataset(tmp_path, "mine", {"mine": task}, place=lambda split: "mine.yaml:4")


def test_values_are_spread_over_the_folds(tmp_path: Path) -> None:
    content = [row | {"label": str(number)} for number, row in enumerate(rows())]
    changes = {"kind": "regression", "labels": None, "range": [0, 60], "metrics": ["pearson"], "primary": "pearson"}
    folder, described = prepare(tmp_path, {"folds": 3}, content, **changes)
    for seed in range(3):
        _, dev = parts(folder, described, seed)
        assert sum(map(int, dev)) / 20 == pytest.approx(29.5, abs=3)


def test_a_drawn_task_judges_others_with_all_of_its_rows(tmp_path: Path) -> None:
    prepare(tmp_path, {"folds": 3})
    other = {**DECLARED, "splits": {"train": "other.csv", "dev": 0.5}, "ood": {"mine": {}}}
    mine = {**DECLARED, "splits": {"train": "rows.csv", "dev": {"folds": 3}}}
    content = "text,label\none text,bad\ntwo words,good\nthe third,bad\nand more,good\n"
    (tmp_path / "data" / "other.csv").write_text(content)
    tasks = {name: TaskConfig.model_validate(one) for name, one in {"other": other, "mine": mine}.items()}
    folder = prepare_dataset(tmp_path, "other", tasks)
    assert len(read_jsonl(folder / "ood" / "mine.jsonl")) == 60


@pytest.mark.parametrize("shares", [[1 / folds] * folds for folds in (2, 3, 5, 10)] + [[0.75, 0.25]])
@pytest.mark.parametrize("counts", [(50, 50), (83, 17), (41, 30, 22)])
def test_single_rows_are_stratified_to_one_row(shares: list[float], counts: tuple[int, ...]) -> None:
    strata = [label for label, count in enumerate(counts) for _ in range(count)]
    units = [str(row) for row in range(len(strata))]
    parts, again, other = (divide(strata, units, shares, Random(seed)) for seed in (0, 0, 1))
    assert parts == again != other
    for label, count in enumerate(counts):
        held = Counter(part for part, stratum in zip(parts, strata, strict=True) if stratum == label)
        assert all(abs(held[part] - share * count) <= 1 for part, share in enumerate(shares))
    sizes = Counter(parts)
    assert all(abs(sizes[part] - share * len(strata)) <= len(counts) for part, share in enumerate(shares))


def test_units_stay_together_and_balance() -> None:
    random = Random(1)
    units = [str(random.randrange(40)) for _ in range(400)]
    strata = [int(random.random() < 0.3 + 0.4 * (int(unit) % 2)) for unit in units]
    parts = divide(strata, units, [0.2] * 5, Random(0))
    places = defaultdict(set)
    for unit, part in zip(units, parts, strict=True):
        places[unit].add(part)
    assert {len(found) for found in places.values()} == {1}

    for seed in range(10):
        held = Counter(zip(divide(strata, units, [0.2] * 5, Random(seed)), strata, strict=True))
        assert all(abs(held[part, label] / strata.count(label) - 0.2) < 0.025 for part in range(5) for label in (0, 1))
