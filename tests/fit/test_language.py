"""Whether an encoder reads the texts of a file."""

from __future__ import annotations

import pytest

from regft_core.data.examples import Example
from regft_core.data.lengths import Lengths
from regft_core.data.prompts import Reading
from regft_core.fit.own_rows import BY_CHARACTERS, other_script, unread


@pytest.mark.parametrize(
    ("text", "encoder", "unknown", "warned"),
    [
        ("a good film", "minilm", 0, False),
        ("un café très bon", "minilm", 0, False),
        ("质量很好", "minilm", 0, True),  # each character is in the vocabulary, and the encoder read English only
        ("очень хороший фильм", "minilm", 0, True),
        ("质量很好", "multilingual", 0, False),
        ("质量很好", "multilingual", 4, True),
    ],
)
def test_a_language_that_is_not_read_is_said(text: str, encoder: str, unknown: int, warned: bool) -> None:
    warning = unread([Example("0", text, None, 0)], encoder, Lengths([], [], 0, Reading(), unknown, 100))
    assert (warning is not None) == warned
    assert warning is None or (encoder in warning and BY_CHARACTERS in warning and "--model" in warning)


def test_the_share_of_another_script() -> None:
    assert other_script([Example("0", "ab, 12", "дж", 0)]) == 0.5
    assert other_script([Example("0", "12 !", None, 0)]) == 0.0
