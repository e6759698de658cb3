"""``prompt`` of a task: the template that its texts are put into, and the word that stands for each label."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence

from pydantic import Field

from regft_core.names import listing, suggestion
from regft_core.schema import Inconsistency, StrictModel

#: Stands in a template for the tokenizer's own mask token.
MASK = "[MASK]"
#: What a template is made of, beside words.
PLACES = re.compile(r"(\{[^{}]*\}|\[MASK\])")


class PromptConfig(StrictModel):
    """How a task is asked as a cloze question (Schick and Schütze, 2021; Gao et al., 2021)."""

    template: str = Field(min_length=1, description="with {text}, {text_pair} in tasks of pairs, and [MASK], each once")
    words: dict[str, str] = Field(
        description="label -> the word at [MASK] that stands for it: one token of the encoder"
    )

    def inconsistencies(self, labels: Sequence[str] | None, paired: bool) -> Iterator[Inconsistency]:
        """Yield what is wrong for a task with these labels; keys below ``prompt``, and a sentence."""
        places, allowed = PLACES.findall(self.template), ["{text}", *(["{text_pair}"] if paired else []), MASK]
        for place in dict.fromkeys([*allowed, *places]):
            if place not in allowed:
                yield (
                    ("template",),
                    f"the template has {place}, which this task has not; allowed are {listing(allowed)}",
                )
            elif places.count(place) != 1:
                yield ("template",), f"the template has {place} {places.count(place)} times; write it once"
        if missing := [label for label in labels or () if label not in self.words]:
            yield ("words",), f"no word for {listing(missing)}; give every label one"
        for label, word in self.words.items():
            if label not in (labels or ()):
                yield ("words", label), f"'{label}' is not a label of this task; {suggestion(label, labels or ())}"
            if not word or word != word.strip() or list(self.words.values()).count(word) > 1:
                yield (
                    ("words", label),
                    f"the word of '{label}' is {word!r}; give each label one of its own, without spaces",
                )
