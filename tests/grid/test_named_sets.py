"""A preset whose ``ood`` names sets of files says which files it lacks, all at once, before anything is prepared."""

from __future__ import annotations

from pathlib import Path

import pytest

from regft_core.errors import DataError
from regft_core.grid.data import prepare
from regft_core.grid.fetch import require_named_sets
from regft_core.runs.project import open_project
from tests.errors import raises_code
from tests.presets.miniature import project

WANTED = (
    "imdb_contrast (judges sst2): there is no file data/imdb_contrast/test_contrast.tsv; it is IMDb/data/test_contrast",
    "paws_qqp (judges qqp): there is no file data/paws_qqp/dev_and_test.tsv; qqp_generate_data.py of github.com/",
)


@pytest.mark.parametrize("name", ["mask_tuning_table1", "mask_tuning_table1_roberta", "mask_tuning_table3"])
def test_every_missing_file_is_named_with_where_it_can_be_had(tmp_path: Path, name: str) -> None:
    root = project(tmp_path, name)
    opened = open_project(root, f"pipelines/presets/{name}.yaml")
    with raises_code(DataError, "file-missing", *WANTED):
        prepare(opened)
    assert not (root / "work").exists()
    (root / "data" / "imdb_contrast").mkdir(parents=True)
    (root / "data" / "imdb_contrast" / "test_contrast.tsv").write_text("Sentiment\tText\nNegative\tbad\n")
    with raises_code(DataError, "file-missing", WANTED[1]) as raised:
        require_named_sets(open_project(root, f"pipelines/presets/{name}.yaml"))
    assert "imdb_contrast" not in str(raised.value)


def test_sets_that_nobody_named_are_left_out(tmp_path: Path) -> None:
    root = project(tmp_path, "mask_tuning_table2")
    path = root / "pipelines" / "presets" / "mask_tuning_table2.yaml"
    for choice in ("all", "none", "[mnli_mm]"):
        text = path.read_text(encoding="utf-8")
        (root / "params.yaml").write_text(text.replace("ood: [mnli_mm]", f"ood: {choice}"), encoding="utf-8")
        require_named_sets(open_project(root))
