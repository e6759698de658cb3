"""Every number that the papers print is stored, once: counts by hand from their texts, and what follows from what."""

from __future__ import annotations

from collections.abc import Sequence

import pytest
import yaml

from regft_core.catalogue import EVALUATIONS
from regft_core.schema.params import Part
from regft_core.settings.published import ALL, PublishedConfig, PublishedRow, read_published
from regft_core.settings.yaml_paths import METHODS, PUBLISHED, TASKS
from regft_core.settings.yaml_paths import names as files_of
from tests.small_project import REPOSITORY

TABLES = {name: read_published(REPOSITORY, name) for name in files_of(REPOSITORY, PUBLISHED)}
#: Table -> rows, means, deviations, means in copied rows, gains; counted in the texts of the papers.
COUNTED = {
    "hype_table1": (12, 60, 40, 0, 0),
    "hype_table2": (3, 15, 12, 0, 0),
    "hype_table3": (3, 30, 21, 0, 0),
    "hype_table4": (8, 32, 0, 0, 4),
    "hype_table5": (12, 60, 32, 20, 0),
    "hype_table6": (2, 12, 0, 0, 0),
    "hype_table7": (3, 36, 0, 0, 24),
    "hype_table8": (7, 28, 0, 0, 0),
    "hype_table9": (3, 15, 0, 0, 0),
    "hype_table12": (3, 33, 0, 0, 4),
    "hype_table16": (16, 80, 64, 0, 8),
    "hype_table17": (3, 15, 0, 0, 0),
    "hype_table18": (6, 30, 0, 0, 0),
    "hype_prose": (15, 25, 0, 0, 0),
    "tdt_table1": (12, 108, 0, 54, 0),
    "tdt_table2": (6, 36, 0, 0, 0),
    "tdt_table3": (4, 8, 0, 0, 4),
    "tdt_table4": (2, 12, 10, 0, 6),
    "tdt_table5": (17, 85, 0, 15, 0),  # R3F has dashes in one half
    "tdt_prose": (4, 5, 0, 0, 0),
    "pats_table1": (8, 72, 0, 0, 0),
    "weight_mixup_table1": (12, 12, 12, 0, 0),
    "weight_mixup_table2": (10, 45, 45, 0, 0),  # averages of Ours are empty, for all five
    "weight_mixup_table3": (9, 45, 45, 5, 0),
    "weight_mixup_table4": (6, 6, 6, 0, 0),
    "weight_mixup_table5": (2, 2, 0, 0, 0),  # of five values, the others cannot be assigned
    "weight_mixup_table8": (12, 108, 108, 0, 0),
    "weight_mixup_table9": (10, 50, 50, 0, 0),
    "weight_mixup_table10": (6, 24, 24, 0, 0),
    "weight_mixup_table11": (6, 30, 30, 0, 0),
    "weight_mixup_prose": (11, 22, 0, 3, 0),
    "weight_mixup_searches": (3, 3, 0, 0, 0),
}
#: Papers that print their scores with two decimals.
TWO_PLACES = ("hype_table", "pats", "weight_mixup_table")


def leaves(parts: Sequence[Part]) -> list[str]:
    """Columns in a mean, those of its nested lists too."""
    return [name for part in parts for name in ([part] if isinstance(part, str) else part)]


def counted(rows: Sequence[PublishedRow]) -> tuple[int, ...]:
    copied = sum(len(row.scores) for row in rows if row.copied_from)
    parts = ([getattr(row, part) for row in rows] for part in ("scores", "deviations", "gains"))
    scores, deviations, gains = (sum(map(len, of)) for of in parts)
    return len(rows), scores, deviations, copied, gains


def test_no_number_is_lost_or_doubled() -> None:
    assert {name: counted(config.rows) for name, config in TABLES.items() if config.rows} == COUNTED


@pytest.mark.parametrize("name", TABLES)
def test_a_file_is_one_table_and_declares_nothing_that_it_does_not_use(name: str) -> None:
    config = TABLES[name]
    if config.rows:  # figures and sections without numbers are called as their presets
        own = {"prose": "_prose", "appendix D.1": "_searches"}
        assert name.endswith(own.get(config.table, f"_table{config.table}"))
    parts = {part for column in config.columns.values() for part in leaves(column.mean_of or ())}
    used = {key for row in config.rows for key in (*row.scores, *row.gains)}
    assert not config.rows or set(config.columns) == used | parts
    assert not config.rows or set(config.encoders) == {row.encoder for row in config.rows}


@pytest.mark.parametrize("name", TABLES)
def test_derived_arms_are_derived_by_a_preset_of_the_table(name: str) -> None:
    presets = [
        yaml.safe_load(path.read_text("utf-8")) for path in (REPOSITORY / "pipelines/presets").glob(f"{name}*.yaml")
    ]
    listed = {arm for preset in presets for arm in (*preset["methods"], *preset.get("method_settings", {}))}
    assert set(TABLES[name].derived) <= listed


@pytest.mark.parametrize("name", TABLES)
def test_means_and_gains_follow_or_are_marked(name: str) -> None:
    """By rounding a mean is off by half a unit in the last place of its parts and of its own, a gain by half more."""
    config = TABLES[name]
    for row in config.rows:
        for key, column in config.columns.items():
            value = mean(column.mean_of, row, config) if key in row.scores and column.mean_of else None
            if value is not None and key in row.recomputed:
                assert abs(value - row.scores[key]) > 0.011
                assert row.recomputed[key] == pytest.approx(value, abs=0.0051)
            elif value is not None:
                assert row.scores[key] == pytest.approx(value, abs=0.0151 if name.startswith(TWO_PLACES) else 0.1001)
        assert set(row.recomputed) <= set(row.scores)
        assert config.misprints or not row.recomputed
        for key, gain in row.gains.items():
            (base,) = (one for one in config.rows if (one.method, one.encoder) == (row.gain_over, row.encoder))
            ours, theirs = (
                one.scores.get(key, mean(config.columns[key].mean_of or [], one, config)) for one in (row, base)
            )
            assert ours is not None
            assert theirs is not None
            assert ours - theirs == pytest.approx(gain, abs=0.0051 if key in row.scores else 0.0151)


def mean(parts: Sequence[Part] | None, row: PublishedRow, config: PublishedConfig) -> float | None:
    """The mean of columns; a nested list is the printed mean of just these where there is one (MNLI over both sets)."""
    values = []
    for part in parts or ():
        printed = [key for key, column in config.columns.items() if column.mean_of == part and key in row.scores]
        names = printed or leaves([part])
        if not set(names) <= set(row.scores):
            return None
        values.append(sum(row.scores[name] for name in names) / len(names))
    return sum(values) / len(values) if values else None


@pytest.mark.parametrize("name", TABLES)
def test_tasks_methods_and_claims_are_there(name: str) -> None:
    config = TABLES[name]
    arms = {*files_of(REPOSITORY, METHODS), *config.derived}
    assert {row.arm for row in config.rows if row.arm} <= arms
    assert {one for claim in config.claims for one in (claim.arm, *claim.over)} <= arms
    assert {part for key in config.metrics for part in key.split("/")} <= set(files_of(REPOSITORY, TASKS))
    rows = {(row.method, row.encoder, row.size, *sorted(row.setting.items())) for row in config.rows}
    assert len(rows) == len(config.rows)
    for column in config.columns.values():
        assert [column.metric, column.mean_of, column.unit].count(None) == 2
    for row in config.rows:
        assert row.arm is None or config.model(row) is not None
        assert set(row.deviations) <= set(row.scores)
        assert bool(row.gains) == bool(row.gain_over)
    for claim in config.claims:
        assert claim.settings(config), claim
        assert set(claim.columns) <= {ALL, *(key for key, column in config.columns.items() if not column.unit)}
        means = {key for key, column in config.columns.items() if column.mean_of is not None}
        assert claim.numbers is None or claim.numbers.evaluation in EVALUATIONS.names()
        assert claim.measure == "mean" or not means & set(claim.columns)
    assert all(abs(row.scores[key]) <= 100 for row in config.rows for key in row.scores if key in config.metrics)


def test_known_misprints_are_listed() -> None:
    wrong = {
        (name, row.method, row.encoder, row.scores[key], value)
        for name, config in TABLES.items()
        for row in config.rows
        for key, value in row.recomputed.items()
    }
    assert wrong == {
        ("hype_table5", "Vanilla", "BERT", 79.31, 79.15),
        ("hype_table18", "Vanilla", "BERT", 79.31, 79.15),
        ("pats_table1", "fine-tuning", "BERT-base", 83.18, 83.04),
        ("pats_table1", "SAGE", "BERT-base", 83.65, 83.71),
        ("pats_table1", "NoisyTune", "RoBERTa-large", 88.56, 88.54),
        ("pats_table1", "PATS", "RoBERTa-large", 88.90, 88.93),
    }
    for name in ("weight_mixup_table8", "weight_mixup_table10"):  # the same pair of numbers for two methods
        assert any("63.93" in text for text in TABLES[name].misprints)


def rows(name: str) -> dict[tuple[str, str, object], PublishedRow]:
    return {(row.method, row.encoder, row.size): row for row in TABLES[name].rows if not row.setting}


@pytest.mark.parametrize(
    ("one", "others"),
    [
        ("hype_table1", "hype_table5 hype_table8 hype_table9"),
        ("weight_mixup_table8", "weight_mixup_table1 weight_mixup_table9"),
        ("weight_mixup_table3", "weight_mixup_table2 weight_mixup_table4"),
        ("weight_mixup_table11", "weight_mixup_table4"),
        ("weight_mixup_table10", "weight_mixup_table9"),
        ("tdt_table5", "tdt_table1 tdt_table2"),
    ],
)
def test_a_row_that_two_tables_print_is_one_row(one: str, others: str) -> None:
    """Over other columns another average: HyPe's misprint of table 5, weight mixup's four of eight tasks."""
    for other in others.split():
        first, second = rows(one), rows(other)
        shared = 0
        for key in set(first) & set(second):
            a, b = first[key], second[key]
            means = TABLES[one].columns.get("average"), TABLES[other].columns.get("average")
            skip = {"average"} if means[0] != means[1] or a.recomputed != b.recomputed else set()
            for part in ("scores", "deviations"):
                mine, theirs = getattr(a, part), getattr(b, part)
                columns = (mine.keys() & theirs.keys()) - skip
                assert {c: mine[c] for c in columns} == {c: theirs[c] for c in columns}
                shared += len(columns)
        assert shared


def test_columns_that_start_from_another_checkpoint_say_which() -> None:
    config = TABLES["tdt_table1"]
    row = rows("tdt_table1")["TDT", "RoBERTa-large", "full"]
    assert config.model(row) == config.model(row, "mnli") == "FacebookAI/roberta-large"
    assert config.model(row, "rte") == config.model(row, "stsb") == "FacebookAI/roberta-large-mnli"
    for table in TABLES.values():
        for encoder in table.encoders.values():
            assert set(encoder.instead) <= set(table.metrics)
