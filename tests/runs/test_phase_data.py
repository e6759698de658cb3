from __future__ import annotations

import os
import time
from pathlib import Path

import pytest

from regft_core.data.examples import Example, write_jsonl
from regft_core.disk.canonical import sha256_file
from regft_core.disk.paths import RACY_NS
from regft_core.disk.reading import read_json
from regft_core.errors import InputChanged
from regft_core.runs import rows as phase_data
from regft_core.runs.rows import read_phase_data, rows_of, split_rows
from regft_core.schema.methods import DataConfig

OLD_NS = 1_000_000_000_000_000_000


def written(path: Path, text: str, *, young: bool = False) -> list[Example]:
    """Write two rows; unless ``young``, its time is of years ago (its time of change cannot be set)."""
    rows = [Example(str(i), text, None, i) for i in range(2)]
    write_jsonl(path, rows)
    if not young:
        os.utime(path, ns=(OLD_NS, OLD_NS))
        settle()
    return rows


def settle() -> None:
    time.sleep(1.2 * RACY_NS / 1e9)


def test_a_set_that_is_not_the_one_of_the_key_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "dev.jsonl"
    rows = written(path, "one")
    sha256 = sha256_file(path)
    assert rows_of(path, sha256) == rows
    written(path, "two")
    with pytest.raises(
        InputChanged, match=r"dev\.jsonl was replaced while [^\n]*\n    -> nothing was stored; .*`dvc repro` again"
    ):
        rows_of(path, sha256)


def test_rows_that_are_read_after_their_key_was_made_are_those_of_the_key(tmp_path: Path) -> None:
    (tmp_path / "task.json").write_text('{"kind": "classification", "labels": ["a", "b"]}')
    path = tmp_path / "0.jsonl"
    rows = written(path, "one")

    def data() -> phase_data.PhaseData:
        return read_phase_data(
            DataConfig(), tmp_path, read_json(tmp_path / "task.json"), path, task="t", seed=0, stratified=False
        )

    first = data()
    assert first.summary.length == 2
    second = data()
    assert second.sha256 == first.sha256  # known by the state of the file: nothing was read
    written(path, "two")
    assert first.examples == rows
    with pytest.raises(InputChanged, match=r"0\.jsonl was replaced"):
        second.examples  # noqa: B018


@pytest.mark.parametrize(("count", "share", "kept"), [(10, 0.75, 7), (24, 0.8, 19), (3, 0.5, 1), (5, 1.0, 5)])
def test_a_split_keeps_the_whole_rows_of_its_share(count: int, share: float, kept: int) -> None:
    """Rounded down, as it is documented: one row more would be one that judges no more."""
    train, validation = split_rows(count, share, 0, "finetune", 0)
    assert (len(train), len(validation)) == (kept, count - kept)
    assert sorted(train + validation) == list(range(count))
