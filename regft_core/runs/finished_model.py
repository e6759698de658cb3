"""The finished model of one run, read from the run store when it is first asked for."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import cached_property
from typing import TYPE_CHECKING, Any

from regft_core.data.examples import Example
from regft_core.errors import ModelError
from regft_core.evaluate.analysis_result import BY_WINDOWS, Unfit
from regft_core.hooks import phase_entries
from regft_core.hooks.declare import Setting
from regft_core.kinds import find
from regft_core.runs.context import Context
from regft_core.runs.encoder_tensors import left_out, load_pretrained, whole
from regft_core.runs.phase import handed, produce
from regft_core.runs.row_splits import member_rows, run_rows

if TYPE_CHECKING:
    import numpy.typing as npt
    from torch import Tensor

    from regft_core.data.batches import Batch
    from regft_core.data.encode import Encoded
    from regft_core.hooks.base import Regulariser
    from regft_core.models.features import Features
    from regft_core.training.stack import Stack
    from regft_core.training.trainee import Trainee


class FinishedModel:
    """The model of a finished run: its own, or the regulariser that answers in the model's place.

    Weights that were pruned are trained again.
    """

    def __init__(self, context: Context) -> None:
        self._context = context
        #: Whether who asks has the files of the methods' views in its key.
        self._shows_views = False

    def for_views(self, shown: bool) -> FinishedModel:
        """This model, with the views of its methods open to the evaluation that is about to run, or closed."""
        self._shows_views = shown
        return self

    @property
    def answered_by(self) -> str | None:
        """The regulariser that answers instead of the model; None where the model does."""
        return None if self._stack.predictor is None else self._stack.predictor.name

    @cached_property
    def _has_model(self) -> bool:
        """Whether the run leaves weights: a bag of words has none."""
        return self._context.keys.weights_wanted(self._context.phase("finetune"))

    @cached_property
    def _stack(self) -> Stack:
        from regft_core.training.stack import Stack

        return Stack(self._context.entries(self._context.phase("finetune")), self._setting)

    @cached_property
    def _setting(self) -> Setting:
        """The setting of the last phase, for rebuilding what its regularisers kept."""
        from regft_core.data.reading import Reading

        context, phase = self._context, self._context.phase("finetune")
        return Setting(
            kind=context.task["kind"],
            num_labels=len(find(context.task["kind"]).output_names(context.task["labels"])),
            seed=context.seed(phase),
            training=phase.training,
            phase=phase.name,
            keyword_segment=context.task.get("keyword_segment"),
            max_length=context.encoder.max_length,
            reading=Reading.of(context.encoder),
            value_range=context.data(phase).value_range,
            prompt=context.prompt(phase),
        )

    @cached_property
    def _read(self) -> tuple[dict[str, dict[str, Tensor]], list[str]]:
        """The tensors as they are stored, and the names of the weights that are read with the encoder."""
        phase = self._context.phase("finetune")
        return self._context.store.read_intact(
            lambda: produce(self._context, phase, "weights" if self._has_model else "state"),
            lambda run: (
                {name: run.load_tensors(name) for name in run.tensor_names if name in ("weights", "kept")},
                left_out(self._context, run),
            ),
        )

    @property
    def kept(self) -> Mapping[str, Tensor]:
        """Tensors that the regularisers kept for inference and figures; mostly none."""
        return self._read[0].get("kept", {})

    @cached_property
    def handed(self) -> Mapping[str, Tensor]:
        """State that earlier phases handed to fine-tuning; the phase that the method names last wins."""
        phase = self._context.phase("finetune")
        return {name: tensor for one in handed(self._context, phase).values() for name, tensor in one.state.items()}

    @property
    def tokenizer(self) -> Any:
        """The encoder's tokenizer."""
        return self._context.tokenizer

    @property
    def pooling(self) -> str:
        """``model.pooling`` of the run."""
        return self._context.encoder.pooling

    def _of_views(self) -> Iterator[tuple[Regulariser, dict[str, Tensor]]]:
        """The regularisers with what each of them kept, on the run's device."""
        if not self._shows_views:
            raise RuntimeError(
                "this evaluation reads what methods say of tokens; say so in its file: READS_VIEWS = True"
            )
        for regulariser in self._stack.regularisers:
            prefix = f"{regulariser.name}."
            tensors = {
                n.removeprefix(prefix): t.to(self._context.device) for n, t in self.kept.items() if n.startswith(prefix)
            }
            yield regulariser, tensors

    def confidence(self, embedding: Tensor) -> Tensor | None:
        """[B, n] of the first regulariser that has learned one; None where none has."""
        confidences = (r.token_confidence(kept, embedding) for r, kept in self._of_views())
        return next((confidence for confidence in confidences if confidence is not None), None)

    def views(self, embedding: Tensor, mask: Tensor, segment: Tensor) -> Mapping[str, Tensor] | None:
        """Views ``[B, n, H]`` of the first regulariser that makes some; None where none does."""
        keyword = self._setting.keyword_segment
        # Padding stays as it is: DeBERTa's convolution reads it.
        untouched = (segment == {None: -2, "text": 0, "text_pair": 1}[keyword]) | (mask == 0)
        views_made = (r.input_views(kept, embedding, mask, untouched) for r, kept in self._of_views())
        return next((views for views in views_made if views is not None), None)

    @cached_property
    def _plain(self) -> Any:
        model, (tensors, of_encoder) = self._load(), self._read
        model.load_state_dict(whole(tensors["weights"], model.state_dict(), of_encoder))
        return model

    @cached_property
    def pretrained(self) -> Any:
        """The classifier as it was loaded, before any phase; its head is newly drawn."""
        return self._load()

    @cached_property
    def _features(self) -> Features | None:
        """Kept vectors of the encoder where all of it has the bits of its checkpoint, and nothing hooks into it."""
        from regft_core.models.load import NEW_PARAMETERS

        encoder_tensors = set(self._plain.state_dict()) - set(getattr(self._plain, NEW_PARAMETERS))
        return None if self.kept or not encoder_tensors <= set(self._read[1]) else self._context.features

    def _load(self) -> Any:
        context = self._context
        return load_pretrained(context, context.phase("finetune"), context.task).to(context.device).eval()

    @cached_property
    def trainee(self) -> Trainee:
        """The model with its sites and hooks, and with what it needs for inference put back in."""
        import torch

        from regft_core.training.trainee import Trainee

        context, phase = self._context, self._context.phase("finetune")
        trainee = Trainee(
            self._plain,
            context.tokenizer,
            context.source,
            context.seed(phase),
            phase.name,
            torch.device(context.device),
            features=self._features,
        )
        if self.kept:
            self._stack.rebuild(trainee, dict(self.kept))
        return trainee

    @property
    def model(self) -> Any:
        """The plain model, with what it needs for inference put back in; on its device.

        Raises ModelError when a regulariser answers instead of the model.
        """
        if self._stack.predictor is not None:
            method, owner = self._context.job.method, self._stack.predictor.name
            raise ModelError(
                "no-model",
                f"{method} has no model of its own to give: '{owner}' answers in its place, which no Hugging Face "
                "directory can hold; its predictions are in work/evaluate\n"
                "    -> name another method",
            )
        return self.trainee.model if self.kept else self._plain

    def answer(self, examples: Sequence[Example], on_batch: Callable[[int], None] | None = None) -> npt.NDArray[Any]:
        """[n, K] logits for ``examples``; raises RunFailed when one is not finite.

        ``on_batch`` hears how many examples are done, where a model answers in batches.
        """
        if self._stack.predictor is not None:
            return self._stack.predict(self.trainee if self._has_model else None, dict(self.kept), examples)
        return self.predict(self.encode(examples), on_batch)

    def encode(self, examples: Sequence[Example]) -> Encoded:
        """Tokens of the examples."""
        return self._context.encode(list(examples), self._context.phase("finetune"))

    @cached_property
    def demonstration_sets(self) -> list[list[int]]:
        """The drawn sets of demonstrations, each as the tokens behind every row; empty where there are none."""
        from regft_core.data.prompts import demonstrations, drawn_sets

        context, phase = self._context, self._context.phase("finetune")
        count = max((r.declares.demonstration_sets for r in self._stack.regularisers), default=0)
        prompt = context.prompt(phase)
        if not count or prompt is None:
            return []
        words, length = self._plain.label_words.tolist(), context.encoder.max_length
        examples = context.data(phase).examples
        train, _, _ = run_rows(phase, None, context.data(phase), context.seed(phase))
        rows = [examples[row] for row in train]
        demos = demonstrations(rows, context.tokenizer, length, prompt, words)
        return drawn_sets(demos, [int(row.label) for row in rows], len(words), count, context.seed(phase))

    def predict(self, encoded: Encoded, on_batch: Callable[[int], None] | None = None) -> npt.NDArray[Any]:
        """[n, K] logits, means over the sets of demonstrations; raises RunFailed when one is not finite."""
        from regft_core.evaluate.predict import over_sets

        return over_sets(encoded, self.demonstration_sets, lambda rows: self._predict(rows, on_batch))

    def _predict(self, encoded: Encoded, on_batch: Callable[[int], None] | None) -> npt.NDArray[Any]:
        from regft_core.data.batches import padding_of
        from regft_core.evaluate.predict import predict

        return predict(
            self.model,
            encoded,
            device=self._context.device,
            precision=self._context.phase("finetune").training.precision,
            padding=padding_of(self._context.tokenizer),
            kind=self._context.task["kind"],
            on_batch=on_batch,
            features=self._features,
        )

    def batches(self, encoded: Encoded) -> Iterator[Batch]:
        """The batches of evaluation, longest texts first; raises Unfit where texts are read in windows."""
        from regft_core.data.batches import collate, evaluation_batches, evaluation_tokens, padding_of

        if encoded.windows is not None:
            raise Unfit(BY_WINDOWS)
        context, padding = self._context, padding_of(self._context.tokenizer)
        for indices in evaluation_batches(encoded, evaluation_tokens(context.device)):
            batch = collate(encoded, indices, padding, context.task["kind"])
            yield batch.to(context.device)

    def training_rows(self) -> list[Example]:
        """The rows that fine-tuning trained on, before any of them is set aside.

        Raises Unfit where those are another task's or have no labels.
        """
        phase = self._context.phase("finetune")
        if phase.data.task not in (None, self._context.job.task) or not phase.data.labels:
            raise Unfit("fine-tuning does not train on this task's labels")
        return self._context.data(phase).examples

    def held_out(self) -> tuple[list[Example], str]:
        """Training rows that no phase learned from, by weights or by choices; else none, and why there are none."""
        context, phase = self._context, self._context.phase("finetune")
        own_task = (None, context.job.task)
        reason = ""
        if self.answered_by is not None:
            reason = f"'{self.answered_by}' answers instead of a model"
        elif phase.data.task not in own_task or not phase.data.labels:
            reason = "fine-tuning does not train on this task's labels"
        elif phase.data.split == 1.0:
            reason = "every training row was trained on (data.split of the phase finetune sets a share aside)"
        elif context.job.values is not None:
            reason = "tuning has chosen the method's values by training rows"
        elif any(entry.declares.validation_share for entry in phase_entries.active(context.entries(phase))):
            reason = "a regulariser of fine-tuning learns from the share that is set aside"
        elif phase.repeat is not None and ("split" in phase.repeat.vary or phase.repeat.merge == "greedy"):
            reason = "the members of fine-tuning learn from, or are chosen by, the share that is set aside"
        elif any(earlier.data.task in own_task and earlier.data.labels for earlier in context.method.earlier):
            reason = "a phase before fine-tuning learns from the training rows too"
        if reason:
            return [], reason
        examples = context.data(phase).examples
        _, rows = member_rows(phase, None, context.data(phase), context.seed(phase))
        return [examples[row] for row in rows], "" if rows else "the share that is set aside has no rows"
