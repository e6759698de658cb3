"""Solved linear models of words and of the frozen encoder's vectors, averaged with weights from out-of-fold answers.

Members: ``words``, that of ``tfidf_logistic_characters``; ``embeddings``, the solved head of ``linear_head``;
``joined``, one model of vectors, words and characters, each of length 1 on average; ``cosine``, a line through the
cosine of a pair's two vectors. Logits (values of a regression) are averaged. The weights have the best metric of the
task over answers to rows that a member's fit had not seen, from five folds of the phase's training rows, drawn towards
prior weights (stacking; Breiman, "Stacked regressions", 1996). A single member is that model.

``beside: <phase>`` averages these probabilities (values) with those of the model that an earlier phase has trained,
which has n / (n + even_rows) of the weight: of n training rows, half at ``even_rows``.

Decisions:
- a member's strength is chosen on all training rows, and its fits inside the folds take it: the rows that choose the
  weights had a say in one number of each member. Rows that judge the run have none.
- terms (word 1- and 2-grams, characters 1 to 4 inside words) and document frequencies are those of all training
  rows, as in ``tfidf_logistic``.
- the model ``beside`` has seen all training rows, so none tells its weight; it is a number that was tried on public
  tasks (benchmarks/README.md): what solved models add falls with the rows.
- of the prior weights ``joined`` has two parts, the others one: it reads what two of them read. Of logits, not of
  probabilities, for a rare label that one member hardly expects is then not lost (benchmarks/README.md).
- ``cosine`` takes part where rows are pairs, each text by itself (``model.pairs: separately``).
- where the metric is F1 or Matthews, the average's answers to rows that members had not seen fit offsets of its logits
  (``training/linear_solution.py``), as those of a solved head do. They are those of the members also with ``beside``.
- words are read from the whole text; the encoder reads ``model.max_length`` tokens.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from copy import deepcopy
from dataclasses import replace
from functools import partial
from typing import Any, Literal

from pydantic import Field

from regft_core.errors import ModelError
from regft_core.hooks.base import Cost, Declares, Description, Handed, Phase, Regulariser, StrictModel, TaskConfig
from regft_core.hooks.declare import (
    Batch,
    Example,
    FitData,
    Tensor,
    Trainee,
    behind,
    from_tensor,
    reads_labels,
    to_tensor,
)
from regft_core.kinds import find
from regft_core.kinds._decision import Decision
from regft_core.lazy import Array, np, sparse, torch
from regft_core.schema import Name
from regft_core.training.bag_of_words import BagOfWords
from regft_core.training.linear_solution import classify_linearly, decision_of, regress_linearly, rows_of
from regft_core.training.logistic import Solution
from regft_core.training.stacked import LIGHT, answers, chosen, logits_of, of_words, plain, probabilities, weights_of

Member = Literal["words", "embeddings", "joined", "cosine"]
#: Prior parts of the average, where they are not one.
PARTS = {"joined": 2}
#: Where the weights of the model ``beside`` are kept.
BESIDE = "beside."


class StackingConfig(StrictModel):
    members: list[Member] = Field(
        ["words", "embeddings", "joined", "cosine"], min_length=1, description="what is averaged"
    )
    beside: Name | None = Field(None, description="earlier phase whose model answers, too; none when absent")
    even_rows: int = Field(200, ge=0, description="training rows at which the model beside is half of the answer")


class Stacking(Regulariser):
    name = "stacking"
    Config = StackingConfig
    _model: Any = None
    off = None  # solved models have no strength 0
    sources = {
        "members": "ours: solved models that err on different rows",
        "beside": "ours: a fine-tuned model errs on different rows again",
        "even_rows": "ours: what solved models add falls with the rows (benchmarks/README.md)",
    }

    @classmethod
    def declare(cls, options: StackingConfig) -> Declares:
        reads = options.members != ["words"] or options.beside is not None
        return Declares(
            needs={} if options.beside is None else {options.beside: "weights"},
            reads="encoder" if reads else "text",
            freezes_encoder=True,
            fits_decision=True,
            reads_metric=True,
            description=Description(
                fit_cost=Cost(1 if reads else 0, 0),
                refused={"mask": "it reads the vector before a head, and words at a mask have none of their own"},
            ),
        )

    @classmethod
    def check_options(cls, options: StackingConfig, phase: Phase) -> list[str]:
        problems = reads_labels(phase)
        if len(set(options.members)) < len(options.members):
            problems.append("a member is listed twice; list each once")
        return problems

    @classmethod
    def check_task(cls, options: StackingConfig, task: TaskConfig) -> list[str]:
        if options.members == ["cosine"] and task.columns.text_pair is None:
            return ["there is one text, and a cosine needs two"]
        return []

    def prepare(self, trainee: Trainee, handed: Mapping[str, Handed]) -> None:
        self._beside = {} if self.options.beside is None else handed[self.options.beside].weights

    def fit(self, trainee: Trainee, data: FitData) -> None:
        examples, kind = data.training_examples, find(self.setting.kind)
        self._rows = len(examples)
        rows = rows_of(self.name, data, None, [example.label for example in examples])
        self._bag = BagOfWords.fit(examples, words=2, characters=4, limit=200_000, sublinear=True)
        vectors = None
        if self.declares.reads == "encoder":
            batches = list(data.stream.evaluation())
            vectors = self._vectors(trainee, batches)[data.places(batches)]
        features = self._features(trainee, self._bag, examples, vectors)
        members = {name: self._member(name, rows, features) for name in self.options.members if name in features}
        left_out = [member.left_out for member in members.values()]
        prior = [PARTS.get(name, 1) for name in members]
        weights, notes = weights_of(kind, left_out, rows.targets, self.setting.metric, self.setting.positive, prior)
        known = all(found is not None for found in left_out)
        average = np.tensordot(weights, left_out, 1) if known else None
        self._decision = decision_of(self.setting, average, rows.targets)
        self._weights = dict(zip(members, weights.tolist(), strict=True))
        self._solutions: dict[str, Solution] = members
        self.marks = list(dict.fromkeys([*(n for s in self._solutions.values() for n in s.notes), *notes]))
        for name, weight in self._weights.items():
            self.diagnostics.log(f"stacking.weight.{name}", 0, weight)
            self.diagnostics.log(f"stacking.strength.{name}", 0, self._solutions[name].strength)

    def _member(self, name: str, rows: Any, features: Mapping[str, Any]) -> Any:
        """A solved member with its answers to left-out rows."""
        kind, own = find(self.setting.kind), replace(rows, features=features[name])
        parts = getattr(self.trainee.model, "parts", (1.0,))
        if name == "words":
            return of_words(kind, own)
        if name == "joined":
            width = features["embeddings"].shape[1] // len(parts)
            words = self._bag.widths(features["words"].shape[1])
            return of_words(kind, own, [*((width, part) for part in parts), *((columns, 1.0) for columns in words)])
        if name == "cosine":
            return chosen(kind, own, plain(kind, LIGHT), partial(plain, kind))
        solver = partial(classify_linearly if kind.has_labels else regress_linearly, parts=parts)
        return chosen(kind, own, solver, lambda strength: partial(solver, strength=strength))

    def decision(self) -> Decision | None:
        return self._decision

    def keep(self, trainee: Trainee) -> dict[str, Tensor]:
        """All that was fitted: the terms and the weights as JSON in bytes, and numbers."""
        kept = {
            "blocks": to_tensor(self._bag.blocks),
            "idf": torch.from_numpy(self._bag.idf),
            "weights": to_tensor(self._weights),
            "rows": torch.tensor(self._rows),
            **{f"{BESIDE}{name}": tensor for name, tensor in self._beside.items()},
        }
        for name, solution in self._solutions.items():
            kept |= {
                f"{name}.weight": torch.from_numpy(np.ascontiguousarray(solution.weight)),
                f"{name}.bias": torch.from_numpy(solution.bias),
            }
        return kept

    def predict(self, trainee: Trainee | None, kept: Mapping[str, Tensor], examples: Sequence[Example]) -> Array:
        kind, bag = find(self.setting.kind), BagOfWords(from_tensor(kept["blocks"]), kept["idf"].numpy())
        vectors = tuned = None
        if trainee is not None and self.declares.reads == "encoder":
            batches = list(trainee.batches(examples, self.setting, getattr(trainee.model, "rows_per_example", 1)))
            order = np.argsort([index for batch in batches for index in batch.host_indices])
            vectors = self._vectors(trainee, batches)[order]
            if beside := behind(BESIDE, kept):
                tuned = self._tuned(trainee, beside, batches)[order]
        features = self._features(trainee, bag, examples, vectors)
        average: Any = 0.0
        for name, weight in from_tensor(kept["weights"]).items():
            solution = Solution(kept[f"{name}.weight"].numpy(), kept[f"{name}.bias"].numpy(), 0.0)
            average = average + weight * answers(features[name], solution)
        found = probabilities(kind, average)
        if tuned is not None:
            share = (rows := float(kept["rows"])) / (rows + self.options.even_rows)
            found = (1 - share) * found + share * probabilities(kind, tuned)
        return logits_of(kind, found).astype(np.float32)

    def _features(
        self, trainee: Trainee | None, bag: BagOfWords, examples: Sequence[Example], vectors: Array | None
    ) -> dict[str, Any]:
        """Features of the members by name, a row an example; ``vectors`` are the encoder's, where members read it."""
        features: dict[str, Any] = {"words": bag.features(examples)}
        if trainee is None or vectors is None:
            return features
        parts = getattr(trainee.model, "parts", (1.0,))
        features["embeddings"] = vectors
        # Single vectors of length 1; of layers and pairs they have one length, and |u - v| says how far apart they are.
        lengths = np.linalg.norm(vectors, axis=1, keepdims=True) if len(parts) == 1 else 1.0
        beside = sparse.csr_matrix(vectors / np.maximum(lengths, 1e-12))
        features["joined"] = sparse.hstack([beside, features["words"]], format="csr")
        if getattr(trainee.model, "rows_per_example", 1) == 2:  # of the last layer, where u and v have mean square 1
            features["cosine"] = np.split(vectors, len(parts), axis=1)[-1].mean(axis=1, keepdims=True)
        elif self.options.members == ["cosine"]:
            raise ModelError(
                "not-separate",
                "stacking: a cosine needs the two texts of a pair by themselves\n"
                "    -> set model: {pooling: mean, pairs: separately}",
            )
        return features

    def _vectors(self, trainee: Trainee, batches: Iterable[Batch]) -> Array:
        """[n, d]: what the last linear of the head receives of every row, as ``linear_head`` reads it."""
        from regft_core.models import features

        answer = features.answers(trainee.model, trainee.output_layer(), trainee.features)
        trainee.model.eval()
        with torch.inference_mode():
            found = [answer(batch)[0].double().cpu() for batch in batches]
        return torch.cat(found).numpy()

    def _tuned(self, trainee: Trainee, weights: Mapping[str, Tensor], batches: Iterable[Batch]) -> Array:
        """[n, K]: what the model answers with the weights of the phase beside."""
        from regft_core.models.sites import classify

        if self._model is None:  # once, for a served model is asked again and again
            self._model = deepcopy(trainee.model).eval()
            self._model.load_state_dict(self._model.state_dict() | dict(weights))
        with torch.inference_mode():
            outputs = [classify(self._model, batch.model_inputs(), padded=batch.padded)[0] for batch in batches]
            return torch.cat(outputs).double().cpu().numpy()
