"""A classifier that regft exported, for transformers: pass ``trust_remote_code=True`` to load it.

The encoder is transformers' own class. This file adds pooling with a linear head, windows over long texts, the texts of
a pair encoded separately, and answers at a mask. Inputs are what the tokenizer of this folder gives for a text or a
pair (``truncation=True``); one that was not prepared as in training raises ValueError.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor, nn
from transformers import (
    AutoConfig,
    AutoModel,
    AutoModelForMaskedLM,
    AutoModelForSequenceClassification,
    PreTrainedConfig,
    PreTrainedModel,
)
from transformers.modeling_outputs import SequenceClassifierOutput


class RegftConfig(PreTrainedConfig):
    """The configuration of an exported classifier.

    Attributes:
        encoder: configuration of the encoder, as transformers writes it.
        pooling: ``mean``, ``unit_mean`` (scaled to length 1), ``mean_last_four`` (of the last ``layers`` layers each),
            ``first`` or ``last`` (a token), ``mask`` (label words at the mask), ``head`` (the family's own classifier).
        row_length: tokens of a row; ``windows`` rows of a longer text are read, which share ``stride`` tokens.
        paired: whether an input is a pair; ``separate``: whether its texts are rows of their own.
        before, between, after: ids of the tokens that the tokenizer adds to a text, and between the texts of a pair.
        types: token types of ``before``, of a text alone, and of ``after``; empty for families without.
        pad, left: the ids of padding among tokens and token types, and whether it stands on the left.
        keeps_end: whether a text that is too long loses its beginning.
        instruction: what every text begins with, as ``text`` and token ``ids``; empty when there is nothing.
        label_words: of ``mask``: the token of each label; ``mask_token``: the id of the mask.
        demonstrations: whether regft averages over demonstrations behind a text, which this file does not.
        logit_temperature: what the logits of ``mask`` are divided by; other heads have it in their weights.
    """

    model_type = "regft_classifier"
    encoder, instruction = dict[str, Any](), {"text": "", "ids": []}
    pooling, layers, row_length, windows, stride = "mean", 1, 512, 1, 0
    before = between = after = types = label_words = ()
    paired = separate = left = keeps_end = demonstrations = False
    pad, mask_token, logit_temperature = (0, 0), -1, 1.0

    def __init__(self, **values: Any) -> None:
        super().__init__(**values)


class RegftClassifier(PreTrainedModel):
    """The classifier: ``model(**tokenizer(texts, padding=True, truncation=True, return_tensors="pt")).logits``."""

    config_class = RegftConfig
    base_model_prefix = "encoder"
    _supports_sdpa = True

    def __init__(self, config: RegftConfig) -> None:
        super().__init__(config)
        encoder = AutoConfig.for_model(**config.encoder)
        if config.pooling in ("head", "mask"):
            auto = AutoModelForSequenceClassification if config.pooling == "head" else AutoModelForMaskedLM
            self.encoder = auto.from_config(encoder)
        else:
            try:
                self.encoder = AutoModel.from_config(encoder, add_pooling_layer=False)
            except TypeError:  # families without a pooler
                self.encoder = AutoModel.from_config(encoder)
            parts = config.layers * (4 if config.separate else 1)
            self.classifier = nn.Linear(encoder.hidden_size * parts, len(config.id2label or ()))
        self.post_init()

    def _init_weights(self, module: nn.Module) -> None:
        """Draw nothing: all weights are in the file."""

    def forward(
        self,
        input_ids: Tensor,
        attention_mask: Tensor | None = None,
        token_type_ids: Tensor | None = None,
        **unused: Any,
    ) -> SequenceClassifierOutput:
        """Logits [B, K] of the tokenizer's rows [B, n], one for a text or a pair."""
        config = self.config
        mask = torch.ones_like(input_ids) if attention_mask is None else attention_mask
        inputs = {"input_ids": input_ids, "attention_mask": mask}
        if token_type_ids is not None and config.types:
            inputs["token_type_ids"] = token_type_ids
        examples = [self._texts(row[real == 1].tolist()) for row, real in zip(input_ids, mask)]
        for text in (text for texts in examples for text in texts):
            self._check(text)
        if config.pooling != "mask" and (config.separate or not config.paired):
            windows = [self._windows(text) for texts in examples for text in texts]
            inputs = self._batch([row for rows in windows for row in rows], input_ids.device)
            means = [torch.full((1, len(rows)), 1 / len(rows), device=input_ids.device) for rows in windows]
            if config.windows > 1:
                inputs["windows"] = torch.block_diag(*means)
        return SequenceClassifierOutput(logits=self.logits(**inputs))

    def logits(
        self, input_ids: Tensor, attention_mask: Tensor, windows: Tensor | None = None, **types: Tensor
    ) -> Tensor:
        """Logits [B, K] of rows [R, n] as the encoder reads them; ``windows`` [texts, R] averages over their rows."""
        config, inputs = self.config, {"input_ids": input_ids, "attention_mask": attention_mask, **types}
        if config.pooling == "head":
            return self.encoder(**inputs).logits
        if config.pooling == "mask":
            place = (input_ids == config.mask_token).int().argmax(1)
            vocabulary = self.encoder(**inputs).logits[torch.arange(len(place), device=place.device), place]
            return vocabulary[:, config.label_words] / config.logit_temperature
        if config.layers == 1:
            states = [self.encoder(**inputs)[0]]
        else:
            outputs = self.encoder(**inputs, output_hidden_states=True)
            before = outputs.decoder_hidden_states if self.encoder.config.is_encoder_decoder else outputs.hidden_states
            states = [*before[-config.layers : -1], outputs[0]]
        vectors = torch.cat([self._pool(hidden, attention_mask) for hidden in states], dim=1)
        if windows is not None:
            vectors = windows @ vectors
        if config.pooling == "unit_mean":
            vectors = nn.functional.normalize(vectors, dim=1)
        if config.separate or config.pooling == "mean_last_four":
            parts = vectors.unflatten(-1, (config.layers, -1))
            vectors = (parts / parts.square().mean(-1, keepdim=True).sqrt().clamp(min=1e-6)).flatten(1)
        if config.separate:
            u, v = vectors[0::2], vectors[1::2]
            vectors = torch.cat([u, v, (u - v).abs(), u * v], dim=-1)
        return self.classifier(vectors)

    def _pool(self, hidden: Tensor, mask: Tensor) -> Tensor:
        if self.config.pooling in ("mean", "unit_mean", "mean_last_four"):
            real = mask.unsqueeze(-1).to(hidden.dtype)
            return (hidden * real).sum(1) / real.sum(1).clamp(min=1e-9)
        places = torch.arange(mask.shape[1], device=mask.device) * mask
        place = places.argmax(1) if self.config.pooling == "last" else mask.int().argmax(1)
        return hidden[torch.arange(len(place), device=place.device), place]

    def _texts(self, row: list[int]) -> list[list[int]]:
        """The token ids of the texts of a row that are encoded on their own, each with the tokens added to a text."""
        config = self.config
        if not config.separate:
            return [row]
        before, between, after = config.before, config.between, config.after
        if not between:
            raise ValueError("The tokenizer puts nothing between two texts: use `regft predict` for pairs.")
        inner = row[len(before) : len(row) - len(after)]
        places = [i for i in range(len(inner)) if inner[i : i + len(between)] == between]
        if len(places) != 1:
            raise ValueError('This model compares two texts: give {"text": ..., "text_pair": ...}.')
        first, second = inner[: places[0]], inner[places[0] + len(between) :]
        return [[*before, *first, *after], [*before, *second, *after]]

    def _check(self, text: list[int]) -> None:
        config, begins = self.config, len(self.config.before)
        instruction = config.instruction["ids"]
        if config.demonstrations:
            raise ValueError("This model averages over demonstrations behind a text: use `regft predict`.")
        if text[begins : begins + len(instruction)] != instruction:
            raise ValueError(f"Every text must begin with {config.instruction['text']!r}, as in training.")
        if config.pooling == "mask" and text.count(config.mask_token) != 1:
            raise ValueError("Every text must stand in the template, with one mask: see README.md in this folder.")
        whole = config.pooling == "mask" or (config.paired and not config.separate)
        if whole and len(text) > config.row_length:
            raise ValueError(f"An input has {len(text)} tokens, and the model reads {config.row_length}.")

    def _windows(self, text: list[int]) -> list[list[int]]:
        """The rows of a text: one, or windows that share ``stride`` tokens; the last ends where the text ends."""
        config = self.config
        start = len(config.before) + len(config.instruction["ids"])
        content = text[start : len(text) - len(config.after)]
        room = config.row_length - start - len(config.after)
        if len(content) <= room:
            return [text]
        step, beyond = room - config.stride, len(content) - room
        starts = range(min(config.windows, 1 - -beyond // step))
        places = [beyond] if config.keeps_end else [min(number * step, beyond) for number in starts]
        return [[*text[:start], *content[place : place + room], *config.after] for place in places]

    def _batch(self, rows: list[list[int]], device: torch.device) -> dict[str, Tensor]:
        """Rows of token ids as padded tensors [R, n]."""
        config, longest = self.config, max(map(len, rows))
        added = len(config.before) + len(config.after)
        batch = {"input_ids": (rows, config.pad[0]), "attention_mask": ([[1] * len(row) for row in rows], 0)}
        if config.types:
            first, text, last = config.types
            types = [[*first, *[text] * (len(row) - added), *last] for row in rows]
            batch["token_type_ids"] = (types, config.pad[1])
        padded = {}
        for name, (columns, value) in batch.items():
            fill = [[value] * (longest - len(row)) for row in columns]
            joined = [[*pad, *row] if config.left else [*row, *pad] for pad, row in zip(fill, columns)]
            padded[name] = torch.tensor(joined, device=device)
        return padded
