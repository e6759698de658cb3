"""Documents have sentences of at most 25 words; they and docstrings have no turn that a reader must translate."""

from __future__ import annotations

import re

from tests.structure import prose


def test_documents_and_docstrings_keep_the_rules() -> None:
    assert not prose.found()


def test_the_rules_find_what_they_are_for() -> None:
    paragraph = "It is short. Then " + "word " * 25 + "end. `code` starts the third."
    counted = [len(sentence.split()) for sentence in prose.sentences(paragraph)]
    assert counted == [3, 27, 4]
    assert any(re.search(turn, "cannot be told from it") for turn in prose.BANNED)


def test_a_table_is_read_by_cells_and_code_is_not() -> None:
    text = "| a | b |\n\n```sh\nnot read\n```\n- one\n  goes on\n"
    assert [words for _, words in prose.paragraphs(text)] == ["a", "b", "one goes on"]
