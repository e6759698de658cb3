"""Prompt-based fine-tuning against transformers' masked LM, token by token and step by step."""

from __future__ import annotations

from copy import deepcopy
from dataclasses import replace
from typing import Any

import pytest
import torch
from transformers import AutoModelForMaskedLM

from regft_core.data.prompts import Prompt, demonstrations, prompted, word_tokens, wrong_words
from regft_core.errors import DataError, ModelError
from regft_core.hooks.declare import Handed
from tests.errors import raises_code
from tests.methods.harness import LABEL_WORDS, MAKES, STILL, TRAINING, Bench, examples, only, source_of, tokenizer_of
from tests.tiny import MASKED_LM_ARCHITECTURES

WITH_MASK = [
    name if name in MAKES else pytest.param(name, marks=pytest.mark.slow)
    for name in MASKED_LM_ARCHITECTURES
    if name not in ("xlnet", "bart")
]
DEMONSTRATED = {"demonstrations": "per_class"}
bench = only("verbaliser", masked_lm=True)


def by_hand(own: Bench, language_model: Any, rows: list[int]) -> torch.Tensor:
    """Logits [B, K] of rows in the written-out template, one at a time, by the masked LM of transformers."""
    tokenizer, given = own.tokenizer, examples(12)
    words = [tokenizer.convert_tokens_to_ids(word) for word in LABEL_WORDS[:2]]
    logits = []
    for row in rows:
        text = f"{given[row].text} it was {tokenizer.mask_token} ."
        batch = tokenizer(text, return_tensors="pt", split_special_tokens=False)
        batch.pop("token_type_ids", None)
        at = (batch["input_ids"][0] == tokenizer.mask_token_id).nonzero().item()
        logits.append(language_model(**batch).logits[0, at, words])
    return torch.stack(logits)


def pretrained(architecture: str) -> Any:
    return AutoModelForMaskedLM.from_pretrained(source_of(architecture, True).path, dtype=torch.float32).eval()


@pytest.mark.parametrize("architecture", WITH_MASK)
def test_logits_are_those_of_the_masked_lm_at_the_mask(architecture: str) -> None:
    """Gao et al., equation 1: the same vectors and output matrix, for the words alone."""
    own = bench(architecture=architecture)
    batch = own.stream.batch(0)
    own.model.eval()
    with torch.no_grad():
        found = own.model(**_inputs(batch)).logits
        wanted = by_hand(own, pretrained(architecture), list(batch.host_indices))
    torch.testing.assert_close(found, wanted, atol=1e-6, rtol=1e-5)


@pytest.mark.parametrize("architecture", ["bert", "roberta", "deberta-v2"])
def test_one_step_is_that_of_the_masked_lm(architecture: str) -> None:
    """The gradient of the cross-entropy of the words, in every tensor of the masked LM, the tied one included."""
    own = bench(architecture=architecture, dropout=None, training=TRAINING.model_copy(update={"dropout": STILL}))
    language_model = pretrained(architecture)
    language_model.config._attn_implementation = own.model.config._attn_implementation
    step = own.step()
    step.trainee.model.train()
    loss = own.stack.backward(step)
    wanted = torch.nn.functional.cross_entropy(
        by_hand(own, language_model, list(step.batch.host_indices)), step.batch.labels
    )
    wanted.backward()
    torch.testing.assert_close(loss, wanted.detach(), atol=1e-6, rtol=1e-6)
    found = dict(own.trainee.named_trainable())
    for name, parameter in language_model.named_parameters():
        if parameter.grad is None:
            continue
        torch.testing.assert_close(found[name].grad, parameter.grad, atol=1e-6, rtol=1e-4)


def _inputs(batch: Any) -> dict[str, torch.Tensor]:
    return {name: value for name, value in batch.model_inputs().items() if name != "token_type_ids"}


def test_a_head_from_an_earlier_phase_is_what_the_phase_starts_from() -> None:
    lm = Bench([("masked_lm", {"trains": "head"})], phase="lm")
    lm.train()
    head = {f"masked_lm.{name}": tensor for name, tensor in lm.method.hand(lm.trainee).items()}
    own = Bench([("verbaliser", {"head": "lm"}), ("wise_ft", {"alpha": 0.5})], handed={"lm": Handed("key", head)})
    for name in own.trainee.sites.head:
        torch.testing.assert_close(own.trainee.anchor("start")[name], own.trainee.raw(name))


def test_re_init_leaves_the_head_that_answers_at_the_mask() -> None:
    plain, drawn = (
        Bench([("verbaliser", {}), ("re_init", {"layers": layers})], architecture="modernbert", masked_lm=True)
        for layers in (0, 1)
    )
    top = plain.trainee.sites.layers[-1].name
    before = dict(plain.trainee.named_raw())
    changed = {name for name, tensor in drawn.trainee.named_raw() if not torch.equal(tensor, before[name])}
    assert changed
    assert all(name.startswith(f"{top}.") for name in changed)


def test_permuted_words_are_those_of_other_labels() -> None:
    own, permuted = (bench({"words": words}, labels=3).model.label_words.tolist() for words in ("task", "permuted"))
    assert permuted == [*own[1:], own[0]]


def test_drawn_words_are_whole_words_of_the_seed() -> None:
    first, again, other = (bench({"words": "drawn"}, seed=seed) for seed in (1, 1, 2))
    words = first.tokenizer.convert_ids_to_tokens(first.model.label_words.tolist())
    assert len(set(words)) == 2
    assert all(word.isalpha() and len(word) > 2 and word not in LABEL_WORDS[:2] for word in words)
    assert torch.equal(first.model.label_words, again.model.label_words)
    assert not torch.equal(first.model.label_words, other.model.label_words)


def test_a_word_of_several_tokens_is_refused_with_its_tokens() -> None:
    tokenizer = tokenizer_of(source_of("bert", True))
    with raises_code(ModelError, "word-not-one-token") as caught:
        word_tokens(Prompt("{text} [MASK]", ("good", "bax")), tokenizer)
    assert "'bax' is not one token of this tokenizer but 'b', '##a', '##x'" in str(caught.value)


def test_words_that_differ_in_case_only_are_refused_where_the_tokenizer_lowers() -> None:
    wrong = wrong_words({"a": "Good", "b": "good"}, tokenizer_of(source_of("bert", True)).backend_tokenizer)
    assert wrong == {"b": "'good' and 'Good' are the same token of this tokenizer"}


def test_long_texts_are_cut_and_the_template_is_not() -> None:
    tokenizer = tokenizer_of(source_of("bert", True))
    one = replace(examples(1, pair=True)[0], text="good " * 30, text_pair="bad " * 5)
    rows = prompted([one], tokenizer, 16, Prompt("{text} ? [MASK] , {text_pair}", ("yes", "no")))
    tokens = tokenizer.convert_ids_to_tokens(rows["input_ids"][0])
    # Eleven tokens are left for texts; the longer one loses what is too much.
    assert tokens == ["[CLS]", *["good"] * 6, "?", "[MASK]", ",", *["bad"] * 5, "[SEP]"]
    assert rows["segment"][0] == [-1, *[0] * 6, -1, -1, -1, *[1] * 5, -1]


def test_the_mask_token_in_a_text_is_refused() -> None:
    tokenizer = tokenizer_of(source_of("bert", True))
    one = replace(examples(1)[0], text="good [MASK] film")
    with raises_code(DataError, "mask-in-text"):
        prompted([one], tokenizer, 16, Prompt("{text} it was [MASK]", ("good", "bad")))


def test_a_demonstration_of_each_class_stands_behind_every_text() -> None:
    own = bench(DEMONSTRATED, labels=3, max_length=160)
    step = own.step()
    batch = own.method.change_batch(step)
    tokenizer, given = own.tokenizer, examples(12, labels=3)
    words = own.model.label_words.tolist()
    prompt = own.setting.prompt
    every = demonstrations(given, tokenizer, 160, prompt, words)
    classes = {tuple(tokens): int(row.label) for tokens, row in zip(every, given, strict=True)}
    for at, row in enumerate(step.batch.host_indices):
        query = own.encoded.input_ids[row]
        tokens = batch.input_ids[at][batch.attention_mask[at] == 1].tolist()
        assert tokens[: len(query)] == query
        parts, rest = [], tokens[len(query) :]
        while rest:
            end = rest.index(tokenizer.sep_token_id) + 1
            parts.append(tuple(rest[:end]))
            rest = rest[end:]
        assert [classes[part] for part in parts] == [0, 1, 2]
        assert tuple(every[row]) not in parts
    assert torch.equal(batch.labels, step.batch.labels)
    assert batch.host_indices == step.batch.host_indices


def test_a_trained_step_is_that_of_the_appended_rows() -> None:
    own = bench(DEMONSTRATED, training=TRAINING.model_copy(update={"dropout": STILL}))
    plain, step, seen, backward = deepcopy(own.model), own.step(), [], own.stack.backward
    own.stack.backward = lambda step: (seen.append((step.batch, backward(step))), seen[-1][1])[1]
    own.loop()._step([list(step.batch.host_indices)])
    ((batch, loss),) = seen
    added = own.method.change_batch(step)
    assert torch.equal(batch.input_ids, added.input_ids)
    with torch.no_grad():
        wanted = torch.nn.functional.cross_entropy(plain(**_inputs(added)).logits, added.labels)
    torch.testing.assert_close(loss, wanted, atol=1e-6, rtol=1e-6)
