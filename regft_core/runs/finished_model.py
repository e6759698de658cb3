"""The finished model of one run, read from the run store when it is first asked for."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from functools import cached_property
from typing import TYPE_CHECKING, Any

from regft_core import metrics
from regft_core.data.encode import Encoded
from regft_core.data.examples import Example
from regft_core.data.prompts import demonstrations, drawn_sets
from regft_core.evaluate.analysis_result import BY_WINDOWS, Unfit
from regft_core.kinds import find
from regft_core.kinds._decision import Decision
from regft_core.runs.context import Context
from regft_core.runs.encoder_tensors import WEIGHTS, left_out, load_pretrained
from regft_core.runs.phase import produce, setting_of
from regft_core.runs.run_folder import StoredRun
from regft_core.training.stack import Stack

if TYPE_CHECKING:
    import numpy.typing as npt
    from torch import Tensor

    from regft_core.data.batches import Batch
    from regft_core.hooks.base import Regulariser
    from regft_core.models.features import Features
    from regft_core.training.trainee import Trainee


class FinishedModel:
    """The model of a finished run, or the regulariser that answers in its place; pruned weights are trained again."""

    def __init__(self, context: Context) -> None:
        self._run, self._phase, self._task = context, context.last, context.task
        self._device = context.device

    @property
    def answered_by(self) -> str | None:
        """The regulariser that answers instead of the model; None where the model does."""
        return None if self._stack.predictor is None else self._stack.predictor.name

    @cached_property
    def _stack(self) -> Stack:
        """The regularisers of the last phase, for rebuilding what they kept."""
        kind = self._task["kind"]  # where the phase learns from no labels, too
        outputs = len(find(kind).output_names(self._task["labels"]))
        return Stack(self._phase.entries, replace(setting_of(self._phase), kind=kind, num_labels=outputs))

    @cached_property
    def _stored(self) -> dict[str, dict[str, Tensor]]:
        """The tensors as they are stored: weights of the encoder's own files are not among them."""

        def load(run: StoredRun) -> dict[str, dict[str, Tensor]]:
            left_out(self._phase, run)  # refuses another encoder
            return {name: run.load_tensors(name) for name in run.tensor_names if name in (WEIGHTS, "kept")}

        phase = self._phase
        return self._run.store.read_intact(lambda: produce(phase, "weights" if phase.weights_wanted else "state"), load)

    @property
    def kept(self) -> Mapping[str, Tensor]:
        """Tensors that the regularisers kept for inference and figures; mostly none."""
        return self._stored.get("kept", {})

    @cached_property
    def decision(self) -> Decision | None:
        """How its answers become decisions, by offsets that training fitted; None: as its kind does it."""
        from regft_core.evaluate.evaluated import unfitted_decision

        phase, task = self._phase, self._task
        while phase.before is not None and phase.training.epochs == 0 and not phase.acting:
            phase = phase.before  # whose weights are those of the run
        by_offsets = metrics.find(task["primary"]).by_offsets
        if by_offsets and phase.decision_metric:  # else no weights are read, which may have been pruned

            def load(run: StoredRun) -> Mapping[str, Tensor]:
                return run.load_tensors("decision") if "decision" in run.tensor_names else {}

            if fitted := self._run.store.read_intact(lambda: produce(phase, "state"), load):
                return Decision.of(fitted)
        return unfitted_decision(task, lambda: (row.label for row in self._phase.rows.examples))

    @property
    def tokenizer(self) -> Any:
        return self._phase.tokenizer

    @property
    def pooling(self) -> str:
        return self._phase.encoder.pooling

    def _of_views(self) -> Iterator[tuple[Regulariser, dict[str, Tensor]]]:
        """The regularisers with what each of them kept, on the run's device."""
        for regulariser in self._stack.regularisers:
            prefix = f"{regulariser.name}."
            kept = {name: tensor for name, tensor in self.kept.items() if name.startswith(prefix)}
            yield regulariser, {name.removeprefix(prefix): tensor.to(self._device) for name, tensor in kept.items()}

    def confidence(self, embedding: Tensor) -> Tensor | None:
        """[B, n] of the first regulariser that has learned one; None where none has."""
        confidences = (r.token_confidence(kept, embedding) for r, kept in self._of_views())
        return next((confidence for confidence in confidences if confidence is not None), None)

    def views(self, embedding: Tensor, mask: Tensor, segment: Tensor) -> Mapping[str, Tensor] | None:
        """Views ``[B, n, H]`` of the first regulariser that makes some; None where none does."""
        keyword = {None: -2, "text": 0, "text_pair": 1}[self._task.get("keyword_segment")]
        untouched = (segment == keyword) | (mask == 0)  # padding stays as it is: DeBERTa's convolution reads it
        views_made = (r.input_views(kept, embedding, mask, untouched) for r, kept in self._of_views())
        return next((views for views in views_made if views is not None), None)

    @cached_property
    def _plain(self) -> Any:
        model = self._load()
        model.load_state_dict(model.state_dict() | self._stored[WEIGHTS])
        return model

    @cached_property
    def pretrained(self) -> Any:
        """The classifier as it was loaded, before any phase; its head is newly drawn."""
        return self._load()

    @cached_property
    def _features(self) -> Features | None:
        """Kept vectors of the encoder where all of it has the bits of its checkpoint, and nothing hooks into it."""
        frozen = set(self._stored[WEIGHTS]) <= set(self._plain.regft_new_parameters)
        plain = not self.kept or self._stack.predictor is not None
        return self._phase.features() if frozen and plain else None

    def _load(self) -> Any:
        return load_pretrained(self._phase, self._task).to(self._device).eval()

    @cached_property
    def trainee(self) -> Trainee:
        """The model with its sites and hooks, and with what it needs for inference put back in."""
        import torch

        from regft_core.training.trainee import Trainee

        phase, device = self._phase, torch.device(self._device)
        trainee = Trainee(
            self._plain, phase.tokenizer, phase.source, phase.seed, phase.name, device, features=self._features
        )
        if self.kept:
            self._stack.rebuild(trainee, dict(self.kept))
        return trainee

    @property
    def model(self) -> Any:
        """The plain model, with what it needs for inference put back in; not where one is ``answered_by`` another."""
        return self.trainee.model if self.kept else self._plain

    def answer(self, examples: Sequence[Example], on_batch: Callable[[int], None] | None = None) -> npt.NDArray[Any]:
        """[n, K] logits; ``on_batch`` hears how many examples are done. Raises RunFailed when one is not finite."""
        if (predictor := self._stack.predictor) is None:
            return self.predict(self.encode(examples), on_batch)
        from regft_core.evaluate.evaluated import require_finite

        trainee = self.trainee if self._phase.weights_wanted else None  # a bag of words has no weights
        logits = self._stack.predict(trainee, dict(self.kept), examples)
        hint = "look at that row; of a method of your own, at `predict`"
        require_finite(logits, [example.idx for example in examples], predictor.name, hint)
        return logits

    def encode(self, examples: Sequence[Example]) -> Encoded:
        return self._phase.encode(list(examples))

    @cached_property
    def demonstration_sets(self) -> list[list[int]]:
        """The drawn sets of demonstrations, each as the tokens behind every row; empty where there are none."""
        phase, prompt = self._phase, self._phase.prompt
        count = max((r.declares.demonstration_sets for r in self._stack.regularisers), default=0)
        if not count or prompt is None:
            return []
        words, rows = self._plain.label_words.tolist(), [phase.rows.examples[row] for row in phase.drawn()[0]]
        demos = demonstrations(rows, phase.tokenizer, phase.encoder.max_length, prompt, words)
        return drawn_sets(demos, [int(row.label) for row in rows], len(words), count, phase.seed)

    def predict(self, encoded: Encoded, on_batch: Callable[[int], None] | None = None) -> npt.NDArray[Any]:
        """[n, K] logits, means over the sets of demonstrations; raises RunFailed when one is not finite."""
        from regft_core.data.batches import padding_of
        from regft_core.evaluate.logits import over_sets, predict

        def logits(rows: Encoded) -> npt.NDArray[Any]:
            return predict(
                self.model,
                rows,
                device=self._device,
                precision=self._phase.training.precision,
                padding=padding_of(self.tokenizer),
                kind=self._task["kind"],
                on_batch=on_batch,
                features=self._features,
            )

        return over_sets(encoded, self.demonstration_sets, logits)

    def batches(self, encoded: Encoded) -> Iterator[Batch]:
        """The batches of evaluation, longest texts first; raises Unfit where texts are read in windows."""
        from regft_core.data.batches import read_in_batches

        if encoded.windows is not None:
            raise Unfit(BY_WINDOWS)
        yield from read_in_batches(encoded, self.tokenizer, self._device, self._task["kind"])

    def training_rows(self) -> list[Example]:
        """The rows of fine-tuning, before any is set aside; raises Unfit for another task's, or without labels."""
        data = self._phase.declared.data
        if data.task not in (None, self._run.job.task) or not data.labels:
            raise Unfit("fine-tuning does not train on this task's labels")
        return self._phase.rows.examples
