"""Every preset names its source, marks what is assumed, and has the printed numbers beside it."""

from __future__ import annotations

import re

import pytest
import yaml

from regft_core.settings.papers.published import published_names, read_published
from tests.presets.miniature import OWN, PRESETS, names
from tests.small_project import REPOSITORY


@pytest.mark.parametrize("name", sorted({*names()} - OWN))
def test_its_head_names_its_protocol_and_its_command(name: str) -> None:
    head = (PRESETS / f"{name}.yaml").read_text(encoding="utf-8").split("model:")[0]
    assert f"regft preset {name}\n" in head
    assert "assumption" not in head, "what a paper leaves open stands in its protocol"
    [protocol] = re.findall(r"^# Sources of all values: (published/protocols/\S+\.yaml)$", head, re.MULTILINE)
    assert name in yaml.safe_load((REPOSITORY / protocol).read_text(encoding="utf-8"))["presets"]


@pytest.mark.parametrize("name", [name for name in names() if "_table" in name])
def test_it_has_the_seeds_and_the_arms_of_its_table(name: str) -> None:
    params = yaml.safe_load((PRESETS / f"{name}.yaml").read_text(encoding="utf-8"))
    table = re.match(r"[a-z_]+_table\d+", name)
    assert table is not None
    assert params["report"]["published"] == table.group()
    config = read_published(REPOSITORY, table.group()).config
    if config.seeds is not None and name != "weight_mixup_table5":
        assert len(params["grid"]["seeds"]) == config.seeds
    model = params["model"]["name"].rsplit("/", 1)[-1]
    for row in config.rows:
        if row.arm is not None and row.copied_from is None and (config.model(row) or "").endswith(f"/{model}"):
            assert row.arm in params["methods"]
            assert row.size in params["grid"]["sizes"]


def test_every_printed_table_with_numbers_has_a_preset() -> None:
    # Test sets of GLUE need submissions to its server; prose has no experiment of its own.
    without = {name for name in published_names(REPOSITORY) if not list(PRESETS.glob(f"{name}*.yaml"))}
    assert without == {"hype_table12", "hype_prose", "tdt_prose", "weight_mixup_prose"}
