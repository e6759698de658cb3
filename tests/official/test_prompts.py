"""Prompt-based fine-tuning against LM-BFF's code: tokens of the templates, logits, loss and gradients."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest
import torch

from regft_core.data.prompts import Prompt, demonstrations, prompted
from regft_core.methods.verbaliser import Verbaliser
from tests.methods.harness import STILL, TRAINING, Bench, examples
from tests.official.releases import TOLERANCE, Release

pytestmark = pytest.mark.slow

LM_BFF = Release("princeton-nlp/LM-BFF", "c282f521001f9c299d29eec7b459266f2b14fbaf")
OFF = TRAINING.model_copy(update={"dropout": STILL})
#: What the released code asks of a tokenizer of its time.
TOKENS = ("cls_token_id", "mask_token_id", "sep_token_id", "pad_token_id", "model_input_names")
TEMPLATE = "*cls**sent_0*_it_was*mask*.*sep+*"


def theirs(bench: Bench, texts: list[str], template: str, words: list[int]) -> list[int]:
    """Tokens of the released templates."""
    released = LM_BFF.definitions("src/dataset.py", ["tokenize_multipart_input"], {"logger": None})
    old = SimpleNamespace(
        encode=bench.tokenizer.encode,
        _convert_token_to_id=bench.tokenizer.convert_tokens_to_ids,
        **{name: getattr(bench.tokenizer, name) for name in TOKENS},
    )
    found = released.tokenize_multipart_input(texts, 160, old, prompt=True, template=template, label_word_list=words)
    count = sum(found["attention_mask"])
    tokens: list[int] = found["input_ids"][:count]
    assert found["mask_pos"] == [tokens.index(bench.tokenizer.mask_token_id)]
    return tokens


def test_templates() -> None:
    bench = Bench([("verbaliser", {})], masked_lm=True, pair=True)
    prompt = Prompt("{text} ? [MASK] , {text_pair}", ("good", "bad"))
    given = examples(12, pair=True)
    ours = prompted(given, bench.tokenizer, 160, prompt)["input_ids"]
    template = "*cls**sent_0*?*mask*,*+sent_1**sep+*"
    for row, example in zip(ours, given, strict=True):
        assert row == theirs(bench, [example.text, str(example.text_pair)], template, [])


def test_demonstrations() -> None:
    bench = Bench([("verbaliser", {"demonstrations": "per_class"})], masked_lm=True, max_length=160)
    found = bench.stack.regularisers[0]
    assert isinstance(found, Verbaliser)
    given, words = examples(12), bench.model.label_words.tolist()
    assert bench.setting.prompt is not None
    every = demonstrations(given, bench.tokenizer, 160, bench.setting.prompt, words)
    chosen = [next(i for i, row in enumerate(given) if row.label == label) for label in (0, 1)]
    query = next(i for i in range(12) if i not in chosen)
    ours = [*bench.encoded.input_ids[query], *every[chosen[0]], *every[chosen[1]]]
    template = TEMPLATE + "".join(f"*sent_{i}*_it_was*label_{i - 1}*.*sep+*" for i in (1, 2))
    assert ours == theirs(bench, [given[i].text for i in (query, *chosen)], template, words)


def test_loss_and_gradients() -> None:
    bench = Bench([("verbaliser", {})], masked_lm=True, training=OFF)
    model, step = bench.model, bench.step()
    loss = bench.stack.backward(step)
    own = {name: p.grad.clone() for name, p in bench.trainee.named_trainable() if p.grad is not None}
    model.zero_grad()
    released = LM_BFF.definitions("src/models.py", ["BertForPromptFinetuning"]).BertForPromptFinetuning
    given: Any = SimpleNamespace(
        num_labels=2,
        config=SimpleNamespace(num_labels=2),
        label_word_list=model.label_words,
        return_full_softmax=None,
        cls=model.cls,
        bert=lambda ids, attention_mask, token_type_ids: (model.bert(ids, attention_mask, token_type_ids)[0], None),
    )
    batch = step.batch
    position = (batch.input_ids == bench.tokenizer.mask_token_id).int().argmax(1, keepdim=True)
    found, _ = released.forward(
        given, batch.input_ids, batch.attention_mask, batch.token_type_ids, mask_pos=position, labels=batch.labels
    )
    found.backward()
    torch.testing.assert_close(loss, found.detach(), atol=TOLERANCE, rtol=0)
    for name, parameter in bench.trainee.named_trainable():
        if parameter.grad is not None:
            torch.testing.assert_close(own[name], parameter.grad, atol=TOLERANCE, rtol=0)
