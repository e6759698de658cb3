"""A bag of words: TF-IDF of word n-grams and a linear model, the opponent that reads no encoder.

Features are TF-IDF weights of word 1- and 2-grams of the full text (``characters: n`` adds character n-grams),
the model is logistic regression, or ridge regression for values. The strength of the L2 penalty is chosen by
cross-validation inside the training rows. Nothing is stored but terms and numbers, and nothing of the encoder
is used: the texts are not truncated to ``model.max_length``.

Decisions:
- pairs: the features of both texts, their product entry by entry (the terms that they share) and its sum (their
  cosine), so that a linear model can see agreement.
- terms and document frequencies are those of all training rows, also within the folds: they know no labels.
- languages without spaces need ``characters``; a run of letters is one word.
- a class without a row is never predicted; the row of a class that has no other is in every fit. Both are marked.
- ``decision: metric`` fits offsets of the logits (``training/linear_solution.py``); probabilities stay as they are.
- where an example has several labels, one regression separates each label from the rest.
- answers are log-probabilities; of several labels the log odds of each.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Literal

from pydantic import Field

from regft_core.hooks.base import Declares, Phase, Regulariser, StrictModel
from regft_core.hooks.declare import DECISION, Example, FitData, Tensor, Trainee, from_tensor, reads_labels, to_tensor
from regft_core.kinds import find
from regft_core.kinds._decision import Decision
from regft_core.lazy import Array, np, special, torch
from regft_core.training.bag_of_words import BagOfWords
from regft_core.training.linear_solution import decision_of, rows_of, solve_words


class TfidfLogisticConfig(StrictModel):
    words: int = Field(2, ge=0, le=5, description="longest word n-gram; 0: no words")
    characters: int = Field(0, ge=0, le=8, description="longest character n-gram, inside words; 0: none")
    sublinear: bool = Field(False, description="whether a term that occurs n times counts 1 + log(n)")
    decision: Literal["metric", "largest"] = Field("metric", description=DECISION)
    limit: int = Field(200_000, ge=1, description="terms of each kind that are kept, the most frequent ones")


class TfidfLogistic(Regulariser):
    name = "tfidf_logistic"
    Config = TfidfLogisticConfig
    off = None  # a linear model of strength 0 is no fine-tuning
    sources = {
        "words": "ours: words and their pairs, the usual baseline",
        "characters": "ours: off; for languages without spaces",
        "sublinear": "ours: off, as in scikit-learn",
        "decision": "ours: what is judged is what is optimised",
        "limit": "ours: far above what a few thousand rows hold; a bound on memory",
    }

    @classmethod
    def declare(cls, options: TfidfLogisticConfig) -> Declares:
        return Declares(reads="text", freezes_encoder=True, fits_decision=options.decision == "metric")

    @classmethod
    def check_options(cls, options: TfidfLogisticConfig, phase: Phase) -> list[str]:
        problems = reads_labels(phase)
        if not options.words and not options.characters:
            problems.append("words and characters are both 0, so there is nothing to count; raise one of them")
        return problems

    def fit(self, trainee: Trainee, data: FitData) -> None:
        examples, own, kind = data.training_examples, self.options, find(self.setting.kind)
        options = own.model_dump(include={"words", "characters", "limit", "sublinear"})
        self._bag = BagOfWords.fit(examples, **options)
        labels = [example.label for example in examples]
        rows = rows_of(self.name, data, self._bag.features(examples), labels, what="tfidf")
        self._model = solve_words(kind, rows)
        self.marks, self._decision = self._model.notes, decision_of(self.setting, self._model.left_out, rows.targets)
        self.diagnostics.log("tfidf_logistic.strength", 0, self._model.strength)
        self.diagnostics.log("tfidf_logistic.terms", 0, len(self._bag.idf))

    def decision(self) -> Decision | None:
        return self._decision

    def keep(self, trainee: Trainee) -> dict[str, Tensor]:
        """All that was fitted: the terms as JSON in bytes, and numbers."""
        return {
            "blocks": to_tensor(self._bag.blocks),
            "idf": torch.from_numpy(self._bag.idf),
            "weight": torch.from_numpy(self._model.weight),
            "bias": torch.from_numpy(self._model.bias),
        }

    def predict(self, trainee: Trainee | None, kept: Mapping[str, Tensor], examples: Sequence[Example]) -> Array:
        bag = BagOfWords(from_tensor(kept["blocks"]), kept["idf"].numpy())
        answers = bag.features(examples) @ kept["weight"].numpy().T + kept["bias"].numpy()
        if find(self.setting.kind).one_label:
            answers = special.log_softmax(answers, axis=1)
        return answers.astype(np.float32)
