"""An exported directory, loaded.

A transformers classifier, an encoder with pooling and head (models/layout.py), or what a run without a model kept
(scoring/answers.py).
"""

from __future__ import annotations

import sys
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from regft_core.data.batches import Padding, padding_of
from regft_core.data.encode import Encoded, encode
from regft_core.data.examples import Example
from regft_core.data.lengths import row_lengths
from regft_core.data.prompts import Prompt, prompted_lengths
from regft_core.data.reading import Reading
from regft_core.errors import ModelError
from regft_core.evaluate.answers import Answers, load_answers
from regft_core.evaluate.predict import over_sets, predict
from regft_core.kinds import find, of_model
from regft_core.models.folder import load_classifier, refuse_absurd_sizes
from regft_core.models.load import quiet
from regft_core.models.outside import ignored, refuse_outside
from regft_core.models.precision import in_precision
from regft_core.models.products import take_fast_products
from regft_core.models.served import Abstain, Served, ServedPrompt, read_served
from regft_core.schema.file_format import UNSAID, FileFormat

#: Lengths above this stand for "no limit" in tokenizer configurations.
_NO_LIMIT = 1_000_000


@dataclass(frozen=True)
class ServedModel:
    """A model with all that its inputs and outputs need.

    Attributes:
        text, text_pair: columns of the training data, None where the directory does not say.
        pairs: whether it was trained on pairs; None where the directory does not say.
        labels: names in the order of the logits; one name for a value.
        max_length: tokens of a row that it reads.
        abstain: below which confidence it does not answer.
        reading: the instruction before a text and the windows over it.
        temperature: what logits are divided by; None: 1.
        precision: in which it answers.
        directory: where it was loaded from.
        file_format: how the training file was read.
    """

    model: Any
    tokenizer: Any
    padding: Padding
    kind: str
    labels: tuple[str, ...]
    max_length: int
    rows_per_example: int
    text: str | None
    text_pair: str | None
    pairs: bool | None
    device: str
    abstain: Abstain | None = None
    temperature: float | None = None
    prompt: ServedPrompt | None = None
    reading: Reading | None = None
    precision: str = "fp32"
    directory: Path | None = None
    file_format: FileFormat = UNSAID

    @property
    def _prompt(self) -> Prompt | None:
        if self.prompt is None:
            return None
        return Prompt(self.prompt.template, self.prompt.tokens, bool(self.prompt.demonstrations))

    def scores(self, examples: Sequence[Example]) -> npt.NDArray[np.float64]:
        """Probabilities [n, K] or values [n, 1], in the order of ``examples``.

        Raises RunFailed for logits that are not numbers.
        """
        encoded = encode(
            examples,
            self.tokenizer,
            self.max_length,
            rows_per_example=self.rows_per_example,
            prompt=self._prompt,
            reading=self.reading,
        )

        def logits(rows: Encoded) -> npt.NDArray[Any]:
            return predict(
                self.model,
                rows,
                device=self.device,
                precision="bf16" if self.precision == "bf16" else "fp32",
                pad_id=self.padding.pad_id,
                pad_token_type_id=self.padding.pad_token_type_id,
                padding_side=self.padding.side,
                kind=self.kind,
            )

        sets = self.prompt.demonstrations if self.prompt is not None else ()
        return _scores(self, over_sets(encoded, sets, logits).astype(np.float64))

    def cut(self, examples: Sequence[Example]) -> int:
        """How many of the examples are longer than what the model reads."""
        if (prompt := self._prompt) is not None:
            room = prompt.room(self.max_length)
            return sum(length > room for length in prompted_lengths(examples, self.tokenizer, prompt))
        lengths = row_lengths(examples, self.tokenizer.backend_tokenizer, self.max_length, self.reading)
        return sum(lengths["separately" if self.rows_per_example == 2 else "jointly"].cut)


@dataclass(frozen=True)
class ServedAnswers:
    """A run without a model, with the face of ``ServedModel``; it reads whole texts, on the CPU."""

    answers: Answers
    kind: str
    labels: tuple[str, ...]
    text: str | None
    text_pair: str | None
    pairs: bool | None
    max_length: None = None
    abstain: Abstain | None = None
    temperature: float | None = None
    precision: str = "fp32"
    device: str = "cpu"
    directory: Path | None = None
    file_format: FileFormat = UNSAID

    def scores(self, examples: Sequence[Example]) -> npt.NDArray[np.float64]:
        """As ``ServedModel.scores``; there are no batches."""
        return _scores(self, self.answers.logits(examples))

    def cut(self, examples: Sequence[Example]) -> int:
        """None of the examples is longer than what is read."""
        return 0


def _scores(model: ServedModel | ServedAnswers, logits: npt.NDArray[np.float64]) -> npt.NDArray[np.float64]:
    """Scores [n, K] of logits [n, K], over the model's own labels, at its temperature."""
    count = len(model.labels)
    return find(model.kind).scores(logits / (model.temperature or 1.0), np.arange(count), count)


def load_served(directory: Path, device: str, precision: str = "fp32") -> ServedModel | ServedAnswers:
    """Load an exported directory (or any fine-tuned transformers classifier) onto ``device``; nothing is downloaded.

    Args:
        precision: fp32, bf16 or int8 (models/precision.py).

    Raises:
        ModelError: no model directory, one that leads elsewhere (models/outside.py), no safetensors weights, no head,
            no fast tokenizer; the device or the model cannot answer in ``precision``.
    """
    if directory.is_dir():
        refuse_outside(directory)
        for said in ignored(directory):
            print(f"warning: {said}", file=sys.stderr)
    served = read_served(directory) if directory.is_dir() else None
    if served is not None and served.answered_by is not None:
        names = served.labels or ("value",)
        paired = served.text_pair is not None
        if precision != "fp32":
            raise ModelError(
                "precision-not-possible",
                f"--precision {precision}: {directory} answers by {served.answered_by.regulariser}, without an encoder"
                "\n    -> leave --precision out",
            )
        return ServedAnswers(
            load_answers(directory),
            served.kind,
            names,
            served.text,
            served.text_pair,
            paired,
            abstain=served.abstain,
            temperature=served.temperature,
            directory=directory,
            file_format=FileFormat(**served.file_format),
        )
    if not (directory / "config.json").is_file():
        found = "is not a directory" if not directory.is_dir() else "has no config.json"
        raise ModelError(
            "not-an-export",
            f"{directory} {found}, so it is not an exported model"
            "\n    -> write one: regft export --method METHOD --task TASK --size SIZE --seed SEED",
        )
    refuse_absurd_sizes(directory)
    take_fast_products()
    tokenizer = _tokenizer(directory)
    model = load_classifier(directory)
    rows = model.get_input_embeddings().num_embeddings
    if beyond := [token for token, number in tokenizer.get_vocab().items() if number >= rows]:
        raise ModelError(
            "weights-do-not-fit",
            f"{directory}: the tokenizer has tokens (such as {beyond[0]!r}) beyond the {rows} rows of the embedding\n"
            "    -> put tokenizer and weights of one model there, or export it again",
        )
    config = model.config
    kind = of_model(config.problem_type, config.num_labels) if served is None else served.kind
    if kind is None:
        raise ModelError(
            "unknown-kind",
            f"{directory}: no kind of task here is a {config.problem_type} with {config.num_labels} outputs\n"
            "    -> give a directory that `regft export` wrote",
        )
    labels = tuple(str(config.id2label[index]) for index in range(config.num_labels))
    if served is not None:
        labels = served.labels or labels
    if alike := {name for name in labels if labels.count(name) > 1}:
        raise ModelError(
            "labels-alike",
            f"{directory}: several outputs are called {sorted(alike)[0]!r} (id2label of config.json)\n"
            "    -> give each its own name there",
        )
    if len(labels) != config.num_labels:
        raise ModelError(
            "counts-differ",
            f"{directory}: {len(labels)} labels, but the model has {config.num_labels} outputs\n    -> export it again",
        )
    return ServedModel(
        model=in_precision(model.to(device).eval(), precision, device, str(directory)),
        tokenizer=tokenizer,
        padding=padding_of(tokenizer),
        kind=kind,
        labels=labels,
        max_length=(served.max_length if served is not None else None) or _own_length(tokenizer, config),
        rows_per_example=getattr(model, "rows_per_example", 1),
        text=served.text if served is not None else None,
        text_pair=served.text_pair if served is not None else None,
        pairs=served.text_pair is not None if served is not None else None,
        device=device,
        abstain=served.abstain if served is not None else None,
        temperature=served.temperature if served is not None else None,
        prompt=served.prompt if served is not None else None,
        reading=_reading(served),
        precision=precision,
        directory=directory,
        file_format=FileFormat(**served.file_format) if served is not None else UNSAID,
    )


def _reading(served: Served | None) -> Reading | None:
    if served is None or (not served.instruction and served.windows == 1):
        return None
    return Reading(served.instruction, served.windows, served.stride)


def _tokenizer(directory: Path) -> Any:
    from transformers import AutoTokenizer

    try:
        with quiet():
            tokenizer = AutoTokenizer.from_pretrained(directory, local_files_only=True, trust_remote_code=False)
    except Exception as error:  # every tokenizer class fails in its own way on damaged files
        raise ModelError(
            "cannot-load", f"{directory}: its tokenizer cannot be loaded: {error}\n    -> export it again"
        ) from error
    if not getattr(tokenizer, "is_fast", False):
        raise ModelError(
            "slow-tokenizer",
            f"{directory}: {type(tokenizer).__name__} is not a fast tokenizer (no tokenizer.json)\n"
            "    -> export it again with a fast tokenizer, or convert it with transformers",
        )
    return tokenizer


def _own_length(tokenizer: Any, config: Any) -> int:
    """Tokens that a model from elsewhere reads, as its tokenizer or its positions say."""
    told = [tokenizer.model_max_length, getattr(config, "max_position_embeddings", None)]
    known = [int(length) for length in told if isinstance(length, int) and 0 < length < _NO_LIMIT]
    return min(known, default=512)
