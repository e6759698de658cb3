"""Vectors of a long text's windows, averaged before the head: forward, gradients, training, export."""

from __future__ import annotations

import pytest
import torch
from transformers import AutoModel

from regft_core.data.batches import collate, padding_of
from regft_core.data.encode import encode
from regft_core.data.examples import Example
from regft_core.data.prompts import Reading
from regft_core.models.heads import pair_features
from regft_core.models.sites import classify
from regft_core.training.step import repeat_batch

LETTERS = " ".join("abcdefghijklmnopqrstuvwxyz")
TEXTS = (LETTERS, "the film was good", "good " * 9)


def batch_of(loaded, reading, *, rows=1, chosen=(0, 1, 2)):
    second = ("no", LETTERS, "yes") if rows == 2 else (None, None, None)
    given = [Example(str(i), *pair, 0) for i, pair in enumerate(zip(TEXTS, second, strict=True))]
    encoded = encode(given, loaded.tokenizer, 8, rows_per_example=rows, reading=reading)
    padding = padding_of(loaded.tokenizer)
    return collate(encoded, chosen, padding)


def logits_of(model, batch):
    return classify(model, batch.model_inputs(), padded=batch.padded)[0]


@pytest.mark.parametrize("architecture", ["bert", "xlnet", "qwen3", "gemma3_text"])
@pytest.mark.parametrize("how", ["cls", "last", "mean", "unit_mean"])
@pytest.mark.parametrize("rows", [1, 2])
def test_the_head_reads_the_mean_over_the_windows_of_each_text(architecture, how, rows, load):
    loaded = load(architecture, pooling=how, rows_per_example=rows)
    batch = batch_of(loaded, Reading(windows=3, stride=2), rows=rows)
    assert batch.windows is not None
    encoder = AutoModel.from_pretrained(loaded.source.path).eval()
    counts = (batch.windows > 0).sum(1).tolist()
    assert max(counts) == 3
    assert min(counts) == 1
    with torch.no_grad():
        vectors = []
        for ids, mask in zip(batch.input_ids, batch.attention_mask, strict=True):
            own = {"input_ids": ids[mask.bool()][None]}
            if batch.token_type_ids is not None and loaded.tokenizer.model_input_names.count("token_type_ids"):
                place = len(vectors)
                own["token_type_ids"] = batch.token_type_ids[place][mask.bool()][None]
            states = encoder(**own).last_hidden_state[0]
            first = how == "cls" and architecture == "bert"
            vectors.append(states.mean(0) if "mean" in how else states[0 if first else -1])
        means = [torch.stack(part).mean(0) for part in (list(p) for p in torch.stack(vectors).split(counts))]
        pooled = torch.stack([one / one.norm() if how == "unit_mean" else one for one in means])
        head = loaded.model.classifier
        wanted = head(pair_features(pooled) if rows == 2 else pooled)
        assert torch.allclose(logits_of(loaded.model, batch), wanted, atol=1e-5)


@pytest.mark.parametrize("how", ["cls", "last", "mean", "unit_mean"])
def test_one_window_is_no_windows_to_the_bit(how, load):
    loaded = load("bert", pooling=how)
    plain, one = batch_of(loaded, None), batch_of(loaded, Reading(windows=1))
    assert torch.equal(logits_of(loaded.model, one), logits_of(loaded.model, plain))
    short = batch_of(loaded, Reading(windows=3, stride=1), chosen=(1,))
    assert torch.equal(logits_of(loaded.model, short), logits_of(loaded.model, batch_of(loaded, None, chosen=(1,))))
    # Given as a matrix, one window for each text is the same, too.
    inputs = {**plain.model_inputs(), "windows": torch.eye(3)}
    assert torch.equal(classify(loaded.model, inputs, padded=plain.padded)[0], logits_of(loaded.model, plain))


def test_a_repeated_batch_has_its_windows_twice(load):
    loaded = load("bert", pooling="mean")
    batch = batch_of(loaded, Reading(windows=3, stride=2))
    once, twice = logits_of(loaded.model, batch), logits_of(loaded.model, repeat_batch(batch, 2))
    assert torch.allclose(torch.cat([once, once]), twice, atol=1e-6)


def test_gradients_reach_the_tokens_of_every_window(load):
    loaded = load("bert", pooling="mean")
    batch = batch_of(loaded, Reading(windows=3, stride=2), chosen=(0,))
    logits_of(loaded.model, batch).square().sum().backward()
    gradient = loaded.model.get_input_embeddings().weight.grad
    read = set(batch.input_ids.flatten().tolist())
    assert len(read) > 14
    assert all(gradient[token].abs().sum() > 0 for token in read)
