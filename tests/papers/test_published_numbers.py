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
#: Table and encoder -> rows, columns with numbers, means, deviations, means in copied rows, gains; counted in the
#: texts of the papers. Empty cells make fewer means than rows times columns.
COUNTED = {
    ("hype_table1", "BERT"): (3, 5, 15, 12, 0, 0),
    ("hype_table1", "XLNet"): (3, 5, 15, 8, 0, 0),
    ("hype_table1", "RoBERTa"): (3, 5, 15, 12, 0, 0),
    ("hype_table1", "ELECTRA"): (3, 5, 15, 8, 0, 0),
    ("hype_table2", "RoBERTa"): (3, 5, 15, 12, 0, 0),
    ("hype_table3", "RoBERTa"): (3, 10, 30, 21, 0, 0),
    ("hype_table4", "DeBERTa Base"): (2, 4, 8, 0, 0, 1),
    ("hype_table4", "DeBERTa Large"): (2, 4, 8, 0, 0, 1),
    ("hype_table4", "DeBERTa XL"): (2, 4, 8, 0, 0, 1),
    ("hype_table4", "DeBERTa XXL"): (2, 4, 8, 0, 0, 1),
    ("hype_table5", "BERT"): (12, 5, 60, 32, 20, 0),
    ("hype_table6", "BERT-large"): (2, 6, 12, 0, 0, 0),
    ("hype_table7", "RoBERTa-large"): (3, 12, 36, 0, 0, 24),
    ("hype_table8", "BERT"): (7, 4, 28, 0, 0, 0),
    ("hype_table9", "BERT"): (3, 5, 15, 0, 0, 0),
    ("hype_table12", "RoBERTa"): (3, 11, 33, 0, 0, 4),
    ("hype_table16", "BERT"): (8, 5, 40, 32, 0, 4),
    ("hype_table16", "RoBERTa"): (8, 5, 40, 32, 0, 4),
    ("hype_table17", "BERT"): (3, 5, 15, 0, 0, 0),
    ("hype_table18", "BERT"): (6, 5, 30, 0, 0, 0),
    ("hype_prose", "BERT"): (4, 4, 7, 0, 0, 0),
    ("hype_prose", "RoBERTa"): (5, 4, 7, 0, 0, 0),
    ("hype_prose", "XLNet"): (1, 1, 1, 0, 0, 0),
    ("hype_prose", "ELECTRA"): (1, 1, 1, 0, 0, 0),
    ("hype_prose", "BERT-large"): (1, 6, 6, 0, 0, 0),
    ("hype_prose", "not stated"): (3, 1, 3, 0, 0, 0),
    ("tdt_table1", "BERT-base"): (2, 9, 18, 0, 0, 0),
    ("tdt_table1", "BERT-large"): (3, 9, 27, 0, 9, 0),
    ("tdt_table1", "RoBERTa-large"): (3, 9, 27, 0, 9, 0),
    ("tdt_table1", "XLNet"): (1, 9, 9, 0, 9, 0),
    ("tdt_table1", "ELECTRA"): (1, 9, 9, 0, 9, 0),
    ("tdt_table1", "DeBERTa"): (1, 9, 9, 0, 9, 0),
    ("tdt_table1", "ALBERT"): (1, 9, 9, 0, 9, 0),
    ("tdt_table2", "BERT-wwm-base"): (2, 6, 12, 0, 0, 0),
    ("tdt_table2", "MacBERT-large"): (2, 6, 12, 0, 0, 0),
    ("tdt_table2", "RoBERTa-wwm-large"): (2, 6, 12, 0, 0, 0),
    ("tdt_table3", "BERT-large"): (2, 2, 4, 0, 0, 2),
    ("tdt_table3", "MacBERT-large"): (2, 2, 4, 0, 0, 2),
    ("tdt_table4", "MacBERT-large"): (2, 6, 12, 10, 0, 6),
    ("tdt_table5", "RoBERTa-large"): (9, 5, 45, 0, 15, 0),
    ("tdt_table5", "RoBERTa-wwm-large"): (8, 5, 40, 0, 0, 0),  # R3F has dashes
    ("tdt_prose", "BERT-base"): (1, 1, 1, 0, 0, 0),
    ("tdt_prose", "BERT-large"): (1, 1, 1, 0, 0, 0),
    ("tdt_prose", "RoBERTa-large"): (1, 1, 1, 0, 0, 0),
    ("tdt_prose", "MacBERT-large"): (1, 2, 2, 0, 0, 0),
    ("pats_table1", "BERT-base"): (4, 9, 36, 0, 0, 0),
    ("pats_table1", "RoBERTa-large"): (4, 9, 36, 0, 0, 0),
    ("weight_mixup_table1", "BERT"): (12, 1, 12, 12, 0, 0),
    ("weight_mixup_table2", "BERT"): (2, 5, 9, 9, 0, 0),  # averages of Ours are empty, for all five
    ("weight_mixup_table2", "BART"): (2, 5, 9, 9, 0, 0),
    ("weight_mixup_table2", "RoBERTa"): (2, 5, 9, 9, 0, 0),
    ("weight_mixup_table2", "DeBERTa"): (2, 5, 9, 9, 0, 0),
    ("weight_mixup_table2", "XLNet"): (2, 5, 9, 9, 0, 0),
    ("weight_mixup_table3", "BERT"): (9, 5, 45, 45, 5, 0),
    ("weight_mixup_table4", "BERT"): (6, 1, 6, 6, 0, 0),
    ("weight_mixup_table5", "BERT"): (2, 1, 2, 0, 0, 0),  # of five values, the others cannot be assigned
    ("weight_mixup_table8", "BERT"): (12, 9, 108, 108, 0, 0),
    ("weight_mixup_table9", "BERT"): (10, 5, 50, 50, 0, 0),
    ("weight_mixup_table10", "BERT"): (6, 4, 24, 24, 0, 0),
    ("weight_mixup_table11", "BERT"): (6, 5, 30, 30, 0, 0),
    ("weight_mixup_prose", "BERT"): (10, 8, 20, 0, 3, 0),
    ("weight_mixup_searches", "BERT"): (3, 1, 3, 0, 0, 0),
    ("weight_mixup_prose", "XLNet"): (1, 2, 2, 0, 0, 0),
}
#: Papers that print their scores with two decimals.
TWO_PLACES = ("hype_table", "pats", "weight_mixup_table")
#: Tables that hold no score, or none that the text at hand kept.
EMPTY = {
    "mask_tuning_table1",
    "mask_tuning_table2",
    "mask_tuning_table3",
    "pats_table3",
    "mask_tuning_alpha",
    "mask_tuning_rate",
    "weight_mixup_settings",
    *(name for name in TABLES if "_figure" in name),
}


def leaves(parts: Sequence[Part]) -> list[str]:
    """Columns in a mean, those of its nested lists too."""
    return [name for part in parts for name in ([part] if isinstance(part, str) else part)]


def counted(config: PublishedConfig, encoder: str) -> tuple[int, ...]:
    rows = [row for row in config.rows if row.encoder == encoder]
    return (
        len(rows),
        len({key for row in rows for key in row.scores}),
        sum(len(row.scores) for row in rows),
        sum(len(row.deviations) for row in rows),
        sum(len(row.scores) for row in rows if row.copied_from),
        sum(len(row.gains) for row in rows),
    )


def test_no_number_is_lost_or_doubled() -> None:
    stored = {
        (name, encoder): counted(config, encoder)
        for name, config in TABLES.items()
        for encoder in (config.encoders if config.rows else ())
    }
    assert stored == COUNTED
    assert {name for name, config in TABLES.items() if not config.rows} == EMPTY
    assert set(TABLES) == {name for name, _ in COUNTED} | EMPTY
    tables = [counts for (name, _), counts in COUNTED.items() if not name.endswith(("_prose", "_searches"))]
    assert [sum(column) for column in zip(*tables, strict=True)][2:] == [1089, 499, 94, 50]


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
    ("one", "other", "shared"),
    [
        ("hype_table1", "hype_table5", 3),
        ("hype_table1", "hype_table9", 2),
        ("hype_table1", "hype_table8", 1),
        ("weight_mixup_table1", "weight_mixup_table8", 12),
        ("weight_mixup_table2", "weight_mixup_table3", 2),
        ("weight_mixup_table3", "weight_mixup_table4", 2),
        ("weight_mixup_table4", "weight_mixup_table11", 3),
        ("weight_mixup_table8", "weight_mixup_table9", 4),
        ("weight_mixup_table9", "weight_mixup_table10", 4),
        ("tdt_table1", "tdt_table5", 2),
        ("tdt_table2", "tdt_table5", 2),
    ],
)
def test_a_row_that_two_tables_print_is_one_row(one: str, other: str, shared: int) -> None:
    first, second = rows(one), rows(other)
    both = set(first) & set(second)
    assert len(both) == shared
    for key in both:
        # Over other columns another average: HyPe's misprint of table 5, weight mixup's four of eight tasks.
        a, b = first[key], second[key]
        means = TABLES[one].columns.get("average"), TABLES[other].columns.get("average")
        skip = {"average"} if means[0] != means[1] or a.recomputed != b.recomputed else set()
        columns = (set(a.scores) & set(b.scores)) - skip
        assert columns
        assert {c: a.scores[c] for c in columns} == {c: b.scores[c] for c in columns}
        deviations = (set(a.deviations) & set(b.deviations)) - skip
        assert {c: a.deviations[c] for c in deviations} == {c: b.deviations[c] for c in deviations}


def test_columns_that_start_from_another_checkpoint_say_which() -> None:
    config = TABLES["tdt_table1"]
    row = rows("tdt_table1")["TDT", "RoBERTa-large", "full"]
    assert config.model(row) == config.model(row, "mnli") == "FacebookAI/roberta-large"
    assert config.model(row, "rte") == config.model(row, "stsb") == "FacebookAI/roberta-large-mnli"
    for table in TABLES.values():
        for encoder in table.encoders.values():
            assert set(encoder.instead) <= set(table.metrics)
