"""``prompt`` of a task: the template that its texts are put into, and the word that stands for each label."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence

from pydantic import Field

from regft_core.names import listing, nearest
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
        yield from ((("template",), message) for message in self._wrong_places(paired))
        if labels is None:
            yield ("words",), "words stand for labels, and this task has none; remove 'prompt'"
            return
        for label in self.words:
            if label not in labels:
                near = nearest(label, labels)
                meant = f"; did you mean '{near}'?" if near else f"; labels are {listing(labels)}"
                yield ("words", label), f"'{label}' is not a label of this task{meant}"
        if missing := [label for label in labels if label not in self.words]:
            yield ("words",), f"no word for {listing(missing)}; give every label one"
        for label, word in self.words.items():
            if not word.strip() or word != word.strip():
                yield ("words", label), f"the word of '{label}' is {word!r}; give one word without spaces around it"
        taken = [label for label, word in self.words.items() if list(self.words.values()).count(word) > 1]
        if taken:
            yield ("words",), f"{listing(taken)} have the same word; give every label its own"

    def _wrong_places(self, paired: bool) -> Iterator[str]:
        found = PLACES.findall(self.template)
        allowed = ["{text}", *(["{text_pair}"] if paired else []), MASK]
        for place in allowed:
            if found.count(place) != 1:
                yield f"the template has {place} {found.count(place)} times; write it once"
        for place in dict.fromkeys(found):
            if place == "{text_pair}" and not paired:
                yield "the template has {text_pair}, but columns.text_pair is missing; remove it, or add the column"
            elif place not in allowed:
                yield f"the template has {place}, which stands for nothing; allowed are {listing(allowed)}"
