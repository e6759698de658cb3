"""An exported directory, loaded: a classifier, or what a regulariser kept that answers in place of a model."""

from __future__ import annotations

import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import torch
from pydantic import ValidationError

from regft_core.data.batches import padding_of
from regft_core.data.encode import encode
from regft_core.data.examples import Example
from regft_core.data.lengths import row_lengths
from regft_core.data.prompts import Prompt, Reading, prompted_lengths
from regft_core.disk.tensors import read_tensors
from regft_core.errors import DataError, ModelError, StoreError, text_of
from regft_core.evaluate.evaluated import require_finite
from regft_core.evaluate.logits import over_sets, predict
from regft_core.hooks.compose import Entry, answers_for_model
from regft_core.hooks.declare import Setting
from regft_core.hooks.registry import discover
from regft_core.kinds import find, of_model
from regft_core.models.architectures import architecture_of
from regft_core.models.checkpoint_files import ADAPTER_FILES, ignored, position_count, refuse_outside
from regft_core.models.export_record import FILE, AnsweredBy, Served, read_served
from regft_core.models.exported_folder import load_with_tokenizer
from regft_core.models.precision import in_precision
from regft_core.schema.method import FINETUNE
from regft_core.schema.training import TrainingConfig

KEPT, ENCODER = "kept.safetensors", "encoder"
#: Lengths above this stand for "no limit" in tokenizer configurations.
_NO_LIMIT = 1_000_000


@dataclass(frozen=True)
class ServedModel:
    """A classifier, or a run that answers without one; ``logits``: examples -> [n, K], or RunFailed for NaN."""

    served: Served
    labels: tuple[str, ...]
    directory: Path
    logits: Callable[[Sequence[Example]], npt.NDArray[np.float64]]
    tokenizer: Any = None
    device: str = "cpu"
    precision: str = "fp32"

    @property
    def columns(self) -> list[str]:
        """Columns of a file that have its inputs: of the text, and of the second text where it reads pairs."""
        return [name for name in (self.served.text, self.served.text_pair) if name is not None]

    def reading(self, text: str | None, text_pair: str | None) -> ServedModel:
        """Return the model for files with columns of these names. DataError for a pair for a model of single texts."""
        if text_pair is not None and self.served.run_key and self.served.text_pair is None:
            message = "--text-pair: this model was trained on single texts"
            raise DataError("single-text-model", f"{message}\n    -> leave --text-pair out")
        named = {"text": text or self.served.text, "text_pair": text_pair or self.served.text_pair}
        return replace(self, served=self.served.model_copy(update=named))

    def scores(self, examples: Sequence[Example]) -> npt.NDArray[np.float64]:
        """Probabilities [n, K] or values [n, 1] at the model's temperature. Raises RunFailed where a logit is NaN."""
        scaled, count = self.logits(examples) / (self.served.temperature or 1.0), len(self.labels)
        return find(self.served.kind).scores(scaled, np.arange(count), count)

    def count_tokens(self, examples: Sequence[Example]) -> tuple[int, int, int]:
        """Return how many examples are longer than what the model reads, unknown tokens, and all tokens."""
        most = self.served.max_length
        if most is None or not examples:
            return 0, 0, 0
        tokenizer, apart = self.tokenizer.backend_tokenizer, self.served.rows_per_example == 2
        lengths = row_lengths(examples, tokenizer, _reading(self.served), apart=apart)
        cut = sum(lengths.cut(most))
        if (prompt := _prompt(self.served)) is not None:
            cut = sum(length > prompt.room(most) for length in prompted_lengths(examples, self.tokenizer, prompt))
        return cut, lengths.unknown, lengths.total


def _prompt(served: Served) -> Prompt | None:
    prompt = served.prompt
    return None if prompt is None else Prompt(prompt.template, prompt.tokens, bool(prompt.demonstrations))


def _reading(served: Served) -> Reading | None:
    reading = Reading(served.instruction, served.windows, served.stride)
    return None if reading == Reading(stride=reading.stride) else reading


def load_served(directory: Path, device: str, precision: str = "fp32") -> ServedModel:
    """Load an exported directory (or any fine-tuned transformers classifier) onto ``device``; nothing is downloaded.

    Raises ModelError for no model directory, one that leads elsewhere, is damaged or of another version, has no head or
    no fast tokenizer, or cannot answer in ``precision``.
    """
    if any((directory / name).is_file() for name in ("config.json", FILE, *ADAPTER_FILES)):  # else it is no model
        refuse_outside(directory)
        for said in ignored(directory):
            print(f"warning: {said}", file=sys.stderr)
    served = read_served(directory) if directory.is_dir() else None
    if served is not None and served.answered_by is not None:
        if precision != "fp32":
            message = f"--precision {precision}: {directory} answers in fp32 only"
            raise ModelError("precision-not-possible", f"{message}\n    -> leave --precision out")
        return _load_answering(directory, served, served.answered_by, device)
    if not (directory / "config.json").is_file():
        found = "is not a directory" if not directory.is_dir() else "has no config.json"
        hint = "write one: regft export --method METHOD --task TASK --size SIZE --seed SEED"
        raise ModelError("not-an-export", f"{directory} {found}, so it is not an exported model\n    -> {hint}")
    model, tokenizer = load_with_tokenizer(directory)
    config = model.config
    if served is None:
        kind = of_model(config.problem_type, config.num_labels)
        if kind is None:
            message = f"{directory}: no kind of task is a {config.problem_type} with {config.num_labels} outputs"
            raise ModelError("unknown-kind", f"{message}\n    -> give a directory that `regft export` wrote")
        told = [tokenizer.model_max_length, position_count(config.to_dict(), architecture_of(config.model_type))]
        limits = [int(length) for length in told if isinstance(length, int) and 0 < length < _NO_LIMIT]
        served = Served(text="text", kind=kind, max_length=min(limits, default=512))
    labels = served.labels or tuple(str(config.id2label[index]) for index in range(config.num_labels))
    if alike := {name for name in labels if labels.count(name) > 1}:
        message = f"{directory}: several outputs are called {sorted(alike)[0]!r} (id2label of config.json)"
        raise ModelError("labels-alike", f"{message}\n    -> give each its own name there")
    if len(labels) != config.num_labels:
        message = f"{directory}: {len(labels)} labels, but the model has {config.num_labels} outputs"
        raise ModelError("counts-differ", f"{message}\n    -> export it again")
    model = in_precision(model.to(device).eval(), precision, device, str(directory))
    settings: dict[str, Any] = {"device": device, "padding": padding_of(tokenizer), "kind": served.kind}
    settings["precision"] = "bf16" if precision == "bf16" else "fp32"
    how: dict[str, Any] = {"prompt": _prompt(served), "reading": _reading(served)}
    most, rows_per_example = served.max_length or 0, served.rows_per_example
    sets = served.prompt.demonstrations if served.prompt is not None else ()

    def logits(examples: Sequence[Example]) -> npt.NDArray[np.float64]:
        encoded = encode(examples, tokenizer, most, rows_per_example=rows_per_example, **how)
        return over_sets(encoded, sets, lambda rows: predict(model, rows, **settings)).astype(np.float64)

    return ServedModel(served, labels, directory, logits, tokenizer, device, precision)


def _load_answering(directory: Path, served: Served, answered_by: AnsweredBy, device: str) -> ServedModel:
    """A regulariser that answers in place of a model; the encoder, if it reads one, is on ``device``."""

    def wrong(why: str) -> ModelError:
        return ModelError("bad-export", f"{directory}: cannot be loaded: {why}\n    -> export it again")

    name = answered_by.regulariser
    cls = discover().get(name)
    if cls is None:
        raise wrong(f"there is no regulariser '{name}' in this version")
    try:
        options = cls.Config.model_validate(answered_by.options)
        kept = read_tensors(directory / KEPT)
    except (ValidationError, StoreError) as error:
        raise wrong(text_of(error)) from error
    if (entry := answers_for_model([Entry(cls, options)])) is None:
        raise wrong(f"'{name}' does not answer by itself")
    setting = Setting(
        kind=served.kind,
        num_labels=len(find(served.kind).output_names(served.labels)),
        seed=0,
        training=TrainingConfig(),
        max_length=served.max_length,
        reading=_reading(served),
    )
    predictor, tokenizer, trainee = cls(options, setting), None, None
    if entry.declares.reads == "encoder":
        from regft_core.training.trainee import Trainee

        model, tokenizer = load_with_tokenizer(directory / ENCODER)
        # No prediction reads the checkpoint that training began with.
        trainee = Trainee(model.to(device).eval(), tokenizer, None, 0, FINETUNE, torch.device(device))  # type: ignore[arg-type]

    def logits(examples: Sequence[Example]) -> npt.NDArray[np.float64]:
        answers = predictor.predict(trainee, kept, examples)
        hint = "check the rows for texts without words, or use another method"
        require_finite(answers, [example.idx for example in examples], name, hint)
        return answers.astype(np.float64)

    return ServedModel(served, served.labels or ("value",), directory, logits, tokenizer)
