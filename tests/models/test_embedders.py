"""Decoder-shaped text embedders: Qwen3-Embedding (last token) and EmbeddingGemma (mean, two-way attention)."""

from __future__ import annotations

from dataclasses import replace

import pytest
import torch
from transformers import AutoModel

from regft_core.data.batches import collate, padding_of
from regft_core.data.encode import encode
from regft_core.data.examples import Example
from regft_core.errors import ModelError
from regft_core.models.heads import PooledClassifier
from regft_core.models.load import load_masked_lm_head
from regft_core.models.sites import classify
from regft_core.models.source import encoder_problems
from regft_core.schema.training import EncoderConfig
from tests.errors import raises_code
from tests.tiny import EMBEDDERS, tiny_model_dir

every = pytest.mark.parametrize("architecture", EMBEDDERS)
TEXTS = ("the film was not good , and the music was bad", "a great story", "no")


@every
@pytest.mark.parametrize("side", ["left", "right"])
@pytest.mark.parametrize("attention", ["sdpa", "eager"])
def test_features_are_those_of_transformers_with_padding_on_either_side(architecture, side, attention, load):
    pooling = EMBEDDERS[architecture]
    loaded = load(architecture, pooling=pooling, attn_implementation=attention)
    assert isinstance(loaded.model, PooledClassifier)
    received: list[torch.Tensor] = []
    loaded.model.classifier.register_forward_pre_hook(lambda _module, args: received.append(args[0]))
    examples = [Example(str(i), text, None, 0) for i, text in enumerate(TEXTS)]
    encoded = encode(examples, loaded.tokenizer, 32)
    padding = padding_of(loaded.tokenizer)
    batch = collate(encoded, [0, 1, 2], replace(padding, side=side))
    encoder = AutoModel.from_pretrained(loaded.source.path, attn_implementation=attention).eval()
    with torch.no_grad():
        classify(loaded.model, batch.model_inputs(), padded=batch.padded)
        loaded.tokenizer.padding_side = side
        together = loaded.tokenizer(list(TEXTS), padding=True, return_tensors="pt")
        hidden = encoder(**together).last_hidden_state
        for row, text in enumerate(TEXTS):
            states = hidden[row][together["attention_mask"][row].bool()]
            wanted = states[-1] if pooling == "last" else states.mean(0)
            assert torch.allclose(received[0][row], wanted, atol=1e-6, rtol=0)
            # Alone there is no padding; on the left it moves positions, and with them the rounding of rotations.
            states = encoder(**loaded.tokenizer([text], return_tensors="pt")).last_hidden_state[0]
            wanted = states[-1] if pooling == "last" else states.mean(0)
            assert torch.allclose(received[0][row], wanted, atol=1e-5, rtol=0)


@every
def test_a_head_that_the_family_does_not_have_is_refused_with_the_pooling_that_it_has(architecture, load, tmp_path):
    path = tiny_model_dir(tmp_path, architecture)
    for pooling in ("head", "mask"):
        shown = (architecture, f"'{pooling}'", f"pooling: {EMBEDDERS[architecture]}")
        with raises_code(ModelError, "pooling-not-possible", *shown):
            load(architecture, pooling=pooling)
        ((key, code, message),) = encoder_problems(EncoderConfig(name=str(path), pooling=pooling), tmp_path)
        assert (key, code) == ("pooling", "pooling-not-possible")
        assert all(word in message for word in shown)
    assert not encoder_problems(EncoderConfig(name=str(path), pooling=EMBEDDERS[architecture]), tmp_path)
    loaded = load(architecture, pooling="mean")
    with raises_code(ModelError, "encoder-does-not-fit", architecture):
        load_masked_lm_head(loaded.source, loaded.model)
