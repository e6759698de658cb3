"""Whether an encoder reads the texts of a file: what its vocabulary lacks, and the script that they are written in."""

from __future__ import annotations

import unicodedata
from collections.abc import Sequence
from functools import cache

from regft_core.data.examples import Example
from regft_core.data.lengths import WORTH_UNKNOWN, Lengths, share
from regft_core.models.fetch import ALIASES

#: Letters of an English text are in this script; more than this share of others makes it another language.
SCRIPT, OTHER_SCRIPT = "LATIN", 0.2
#: Compares texts by their characters, so it reads any language.
BY_CHARACTERS = "tfidf_logistic_characters"
#: Encoders of about a hundred languages, on the Hugging Face hub.
MULTILINGUAL = ("sentence-transformers/paraphrase-multilingual-MiniLM-L12-v2", "FacebookAI/xlm-roberta-base")


def unread(examples: Sequence[Example], encoder: str, lengths: Lengths) -> str | None:
    """Return why an encoder does not read the texts, and what does; None where it seems to.

    Args:
        encoder: its name. All encoders with an alias were trained on English.
        lengths: of the examples with its tokenizer.
    """
    unknown, other = lengths.unknown / max(1, lengths.total), other_script(examples)
    if unknown > WORTH_UNKNOWN:
        why = f"{share(unknown)} of the tokens are not in its vocabulary"
    elif encoder in ALIASES and other > OTHER_SCRIPT:
        why = f"it was trained on English, and {share(other)} of the letters are of another script"
    else:
        return None
    return (
        f"warning: {encoder} does not read these texts: {why}. {BY_CHARACTERS} reads any. For better scores, "
        f"get a multilingual encoder (for instance {' or '.join(MULTILINGUAL)} on huggingface.co) and give its folder "
        "with --model"
    )


def other_script(examples: Sequence[Example]) -> float:
    """Return the share of letters that are not Latin ones, of all letters of the texts."""
    letters = [
        letter for example in examples for letter in f"{example.text}{example.text_pair or ''}" if letter.isalpha()
    ]
    return sum(not _is_latin(letter) for letter in letters) / max(1, len(letters))


@cache
def _is_latin(letter: str) -> bool:
    return unicodedata.name(letter, "").startswith(SCRIPT)
