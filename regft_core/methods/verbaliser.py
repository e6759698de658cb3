"""Prompt-based fine-tuning with a verbaliser (PET, Schick and Schütze, EACL 2021; LM-BFF, Gao et al., ACL 2021).

A text stands in its task's template (``prompt`` in the task's YAML), and one word stands for each label. The logits are
those of the checkpoint's masked-LM head at the mask, for these words only (Gao et al., equation 1); they are fine-tuned
with the task's loss. There is no new parameter. The method needs ``model: {pooling: mask}``.

``demonstrations: per_class`` puts one training example of each class behind the text, with its word instead of the
mask (Gao et al., section 6). They are drawn anew in each step, never the row itself. In evaluation the logits are means
over ``sets`` drawn sets.

Decisions:
- templates are the printed ones. The released code also drops the last character of a first text that is followed by
  "?", and writes the second text's first letter small.
- words are tokenised after a space, as in the released code.
- a checkpoint without a masked-LM head takes one that an earlier phase trained on the task's text (``head: <phase>``,
  regulariser ``masked_lm``); the result is marked. Without such a phase it is refused.
- texts that are too long are cut, the template never; the number of cut training texts is marked.
- demonstrations have half of ``max_length``, in equal shares; the released code doubles the length instead.
- the sets of an evaluation are the same for all its rows, so that an export can hold them; the released code draws sets
  for each row. Demonstrations are not filtered by similarity, as in the paper's random sampling.
- demonstrations are of segment 0; the released code draws embeddings for new segments where the encoder has any.
- regression (the paper interpolates between two words) is refused. XLNet is refused: it was not pretrained to read a
  mask token. So is BART, whose predictions come from a decoder.
"""

from __future__ import annotations

from collections.abc import Mapping
from random import Random
from typing import TYPE_CHECKING, Literal

from pydantic import Field, model_validator

from regft_core.data.batches import collate
from regft_core.data.encode import chosen
from regft_core.data.prompts import appended, demonstration_room, demonstrations, drawn, prompted_lengths, word_tokens
from regft_core.errors import ModelError
from regft_core.hooks.base import Declares, Description, Flip, Handed, Phase, Regulariser, StrictModel, TaskConfig
from regft_core.hooks.declare import Batch, FitData, Step, Trainee, reads_labels
from regft_core.kinds import find
from regft_core.lazy import torch
from regft_core.models.masking import TRAINED_HEAD, take_head
from regft_core.rng import derive
from regft_core.schema import Name

if TYPE_CHECKING:
    from regft_core.models.heads import MaskClassifier

#: Without these, a drawn word would be a mark, a number or a piece of a word.
SHORTEST_WORD = 3


class VerbaliserConfig(StrictModel):
    words: Literal["task", "permuted", "drawn"] = Field(
        "task", description="those of the task; permuted: each label has the next one's, drawn: random ones (controls)"
    )
    demonstrations: Literal["none", "per_class"] = Field(
        "none", description="per_class: one training example of each class behind every text"
    )
    sets: int = Field(16, ge=1, le=256, description="drawn sets of demonstrations over which evaluation averages")
    head: Name | None = Field(
        None, description="phase that trained a masked-LM head, used where the checkpoint has none of its own"
    )

    @model_validator(mode="after")
    def _consistent(self) -> VerbaliserConfig:
        if self.demonstrations == "none" and "sets" in self.model_fields_set:
            raise ValueError("sets counts sets of demonstrations, and demonstrations is none; remove sets")
        return self


class Verbaliser(Regulariser):
    name = "verbaliser"
    Config = VerbaliserConfig
    off = None
    controls = {
        "drawn": Flip({"words": "drawn"}, "random words stand for the labels"),
        "no_demonstrations": Flip(
            {"demonstrations": "none"},
            "no training example stands behind the texts",
            when=lambda options: options.demonstrations == "per_class",
        ),
        "permuted": Flip({"words": "permuted"}, "each label has another label's word"),
    }
    sources = {
        "words": "ours: task is the method, permuted and drawn are its controls",
        "demonstrations": "paper: Gao et al. 2021, sections 4 (none) and 6 (per_class)",
        "sets": "code: princeton-nlp/LM-BFF README.md:94",
        "head": "ours: needed for checkpoints without a masked-LM head only",
    }

    @classmethod
    def declare(cls, options: VerbaliserConfig) -> Declares:
        return Declares(
            needs={options.head: "state"} if options.head is not None else {},
            edits=("weights",),
            edit_order=-1,  # what later edits see is the whole model
            trains_encoder=True,
            reads_positions=True,
            recordable=True,
            answers_at_mask=True,
            demonstration_sets=options.sets if options.demonstrations == "per_class" else 0,
            description=Description(
                refused_architectures=("bart", "gemma3_text", "qwen3", "xlnet"),
                refused={"separately": "both texts of a pair stand in one template"},
            ),
        )

    @classmethod
    def check_options(cls, options: VerbaliserConfig, phase: Phase) -> list[str]:
        problems = reads_labels(phase)
        without = "without demonstrations, unlike the finished run; set"
        if options.demonstrations == "per_class":
            if phase.training.checkpoint != "last" or phase.training.epoch_scores:
                problems.append(f"epochs are scored {without} training: {{checkpoint: last, epoch_scores: false}}")
            if phase.repeat is not None and phase.repeat.scores:
                problems.append(f"members of the soup are scored {without} repeat: {{merge: mean}}")
        return problems

    @classmethod
    def check_task(cls, options: VerbaliserConfig, task: TaskConfig) -> list[str]:
        kind = find(task.kind)
        if not (kind.has_labels and kind.one_label):
            return [f"one word stands for each label, and a {task.kind} task has no single label per example"]
        if task.prompt is None:
            return [
                "the task has no prompt; add to its YAML: prompt: {template: '{text} It was [MASK].', words: {LABEL: "
                "WORD, ...}}"
            ]
        return []

    def edit_weights(self, trainee: Trainee) -> None:
        from regft_core.models.heads import MaskClassifier

        if not isinstance(trainee.model, MaskClassifier) or self.setting.prompt is None:
            raise ModelError(
                "mask-head-missing", "verbaliser: the model does not answer at a mask; set model: {pooling: mask}"
            )
        self.model: MaskClassifier = trainee.model
        with torch.no_grad():
            self.model.mask_token.fill_(trainee.tokenizer.mask_token_id)
            self.model.label_words.copy_(torch.tensor(self._words(trainee)))

    def _words(self, trainee: Trainee) -> list[int]:
        assert self.setting.prompt is not None
        words = word_tokens(self.setting.prompt, trainee.tokenizer)
        if self.options.words == "permuted":
            return [*words[1:], words[0]]
        if self.options.words == "task":
            return words
        order = list(range(len(trainee.tokenizer)))
        # Of the seed alone: members of a repeated phase have the same words.
        Random(derive(trainee.seed, "verbaliser.words")).shuffle(order)
        found: list[int] = []
        for token in order:
            word = trainee.tokenizer.decode([token]).strip()
            whole = word.isalpha() and trainee.tokenizer.encode(f" {word}", add_special_tokens=False) == [token]
            if whole and len(word) >= SHORTEST_WORD and token not in words:
                found.append(token)
            if len(found) == len(words):
                return found
        raise ModelError(
            "words-missing",
            f"verbaliser: the vocabulary has no {len(words)} other words to draw\n"
            "    -> give the words of 'prompt' in the task's YAML, or use an encoder with more words",
        )

    def prepare(self, trainee: Trainee, handed: Mapping[str, Handed]) -> None:
        if not self.model.pretrained_head:
            take_head(self, self.model.masked_lm_head, self.model.base_model, handed)
            trainee.renew(trainee.sites.head)  # the phase starts from it, not from what was drawn
            self.marks.append(f"{self.name}: {TRAINED_HEAD}")

    def fit(self, trainee: Trainee, data: FitData) -> None:
        """Count what the template leaves no room for; tokenise the demonstrations."""
        prompt, longest = self.setting.prompt, self.setting.max_length
        assert prompt is not None
        assert longest is not None
        rows = data.training_examples
        lengths = prompted_lengths(rows, trainee.tokenizer, prompt)
        if cut := sum(length > prompt.room(longest) for length in lengths):
            self.marks.append(f"verbaliser: {cut} of {len(rows)} training texts were cut to fit the template")
        if self.declares.demonstration_sets:
            words = self.model.label_words.tolist()
            self.encoded, self.rows = data.stream.encoded, {row: at for at, row in enumerate(data.stream.rows)}
            self.padding = data.stream.padding
            self.demos = demonstrations(rows, trainee.tokenizer, longest, prompt, words)
            self.labels = [int(row.label) for row in rows]
            if cut := sum(length > demonstration_room(longest, prompt) for length in lengths):
                self.marks.append(f"verbaliser: {cut} of {len(rows)} demonstrations were cut; raise max_length")
            if absent := len(words) - len(set(self.labels)):
                self.marks.append(f"verbaliser: {absent} of {len(words)} classes have no training row to demonstrate")

    def change_batch(self, step: Step) -> Batch:
        """The batch with demonstrations behind each row, drawn for this step."""
        if not self.declares.demonstration_sets:
            return step.batch
        rows, classes = step.batch.host_indices, len(self.model.label_words)
        added = []
        for row in rows:
            key = (self.trainee.phase, "verbaliser.demonstrations", step.index, step.micro, row)
            shown = drawn(self.labels, classes, Random(derive(self.trainee.seed, *key)), without=self.rows.get(row))
            added.append([token for index in shown for token in self.demos[index]])
        part = appended(chosen(self.encoded, rows), added)
        batch = collate(part, range(len(rows)), self.padding, self.setting.kind)
        return batch.numbered(step.batch).to(self.trainee.device)
