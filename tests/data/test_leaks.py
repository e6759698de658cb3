"""Rows that judge although training rows nearly hold them are counted, shown and explained."""

from __future__ import annotations

from functools import cache
from random import Random

import pytest

from regft_core.data.checks import NEAR, leak_warning, leaks_between, leaks_of_folds, normalised, oddities
from regft_core.data.examples import Example
from regft_core.data.read_split import Split


def split(*texts: str | tuple[str, str], groups: list[str] | None = None) -> Split:
    pairs = [(text, None) if isinstance(text, str) else text for text in texts]
    return Split([Example(str(n), text, pair, 0) for n, (text, pair) in enumerate(pairs)], {}, groups)


REVIEW = "The battery lasts two full days and the screen is bright enough to read outside in the sun."


def test_near_duplicates_of_training_rows_are_found_and_exact_ones_are_not_counted_twice() -> None:
    train = split(REVIEW, "Completely different words stand here, about a garden and its flowers.")
    dev = split(REVIEW.replace("two", "three"), REVIEW.upper().replace(",", " -"), REVIEW, "The garden is small.")
    found = leaks_between(train, dev)
    assert found["rows"] == 4
    assert found["near"]["rows"] == 2
    assert found["near"]["examples"][0][0].startswith("The battery lasts three")
    assert "text" not in found


def test_one_sided_overlaps_and_words_for_none_of_pairs() -> None:
    pairs = split(("nan", "Good."), ("Bad.", "None"), ("Fine.", "Yes."))
    assert oddities("classification", ["any"], {"train": pairs})["none"]["rows"] == 2
    train = split(("A man sleeps.", "Someone is asleep."), ("Dogs run.", "Animals move."))
    dev = split(
        ("A man sleeps!", "He is in the kitchen."), ("Cats climb.", "animals move"), ("Someone is asleep", "New.")
    )
    found = leaks_between(train, dev)
    assert found["text"]["rows"] == 2  # the third has it on the other side
    assert found["text_pair"]["rows"] == 1
    assert found["text_pair"]["examples"] == [["animals move", "Animals move."]]
    assert found["near"]["rows"] == 0


def test_in_folds_rows_of_one_group_do_not_count() -> None:
    texts = [
        (REVIEW, f"question {number} about {word}") for number, word in enumerate(["one", "price", "colour", "zoom"])
    ]
    assert leaks_of_folds(split(*texts))["text"]["rows"] == 4
    assert leaks_of_folds(split(*texts, groups=["a", "a", "b", "b"]))["text"]["rows"] == 4
    assert leaks_of_folds(split(*texts, groups=["a"] * 4))["text"]["rows"] == 0


def test_all_near_duplicates_that_comparing_every_pair_finds() -> None:
    random = Random(0)
    words = ["".join(random.choice("abcdefghijklmnop") for _ in range(6)) for _ in range(300)]
    texts = [" ".join(random.choices(words, k=20)) for _ in range(150)]
    for text in texts[:60]:
        changed = text.split()
        for _ in range(random.randrange(1, 4)):
            changed[random.randrange(20)] = random.choice(words)
        texts.append(" ".join(changed))

    @cache
    def shingles(text: str) -> set[str]:
        return {normalised(text)[start : start + 5] for start in range(len(normalised(text)) - 4)}

    def alike(one: str, other: str) -> float:
        return len(shingles(one) & shingles(other)) / len(shingles(one) | shingles(other))

    expected = {
        one
        for one in range(len(texts))
        for other in range(len(texts))
        if one != other and alike(texts[one], texts[other]) >= NEAR
    }
    assert 10 < len(expected) < 120
    assert leaks_of_folds(split(*texts))["near"]["rows"] == len(expected)


def test_many_copies_in_one_group_do_not_hide_the_one_outside() -> None:
    texts = [REVIEW.replace("two", f"{number}") for number in range(40)]
    found = leaks_of_folds(split(*texts, groups=["a"] * 39 + ["b"]))
    assert found["near"]["rows"] == 40


@pytest.mark.parametrize("text", ["", "!", "ok", "漢字", "🙂🙂"])
def test_short_texts(text: str) -> None:
    assert leaks_between(split("something else", text + " "), split(text))["near"]["rows"] == 0


def test_the_warning_counts_and_names_the_remedy() -> None:
    texts = [(REVIEW, f"question {number} of {word}") for number, word in enumerate(["one", "price", "colour"])]
    leaks, folds = leaks_of_folds(split(*texts)), {"folds": 5, "repeats": 1, "group": None}
    for drawn, remedy in ((folds, "columns.group"), ({}, "folds: 5")):
        text = leak_warning("shop", {"leaks": leaks, "drawn": drawn}) or ""
        assert all(part in text for part in ("shop: of the 3 rows", "3 share their text", "The battery lasts", remedy))
    assert leak_warning("shop", {"leaks": leaks_between(split("one text"), split("another row"))}) is None
