from __future__ import annotations

import pytest
import torch
from safetensors.torch import load_file
from transformers import AutoModelForCausalLM, AutoModelForMaskedLM

from regft_core.models.load import load_masked_lm_head
from regft_core.models.sites import classify
from tests.tiny import MASKED_LM_ARCHITECTURES

#: Families whose masked LM has an output matrix of its own.
UNTIED = ("eurobert",)
every = pytest.mark.parametrize("architecture", MASKED_LM_ARCHITECTURES)


@every
def test_the_pretrained_head_gives_the_logits_of_the_familys_own_masked_lm(architecture, load):
    loaded = load(architecture, masked_lm=True)
    head, pretrained = load_masked_lm_head(loaded.source, loaded.model)
    assert pretrained
    auto = AutoModelForCausalLM if architecture == "xlnet" else AutoModelForMaskedLM
    reference = auto.from_pretrained(loaded.source.path).eval()
    batch = loaded.batch()
    with torch.no_grad():
        expected = reference(**batch).logits
        _, hidden = classify(loaded.model, batch, need_hidden=True)
        found = head(hidden[1, 2:5])  # any choice of positions, [m, H]
    assert found.shape == (3, len(loaded.tokenizer))
    assert torch.allclose(found, expected[1, 2:5], atol=1e-5)


@pytest.mark.parametrize("architecture", [name for name in MASKED_LM_ARCHITECTURES if name not in UNTIED])
@pytest.mark.parametrize("masked_lm", [True, False])
def test_the_output_matrix_is_the_input_embedding(architecture, masked_lm, load):
    loaded = load(architecture, masked_lm=masked_lm)
    head, pretrained = load_masked_lm_head(loaded.source, loaded.model)
    assert pretrained == (masked_lm or architecture == "bart")  # whose head is the embedding alone
    embedding = loaded.model.get_input_embeddings().weight
    assert any(parameter is embedding for parameter in head.parameters())
    stored = load_file(loaded.source.path / "model.safetensors")
    assert any(torch.equal(value, embedding) for value in stored.values())
    hidden = torch.randn(4, 32)
    with torch.no_grad():
        first = head(hidden)
        embedding[7] += 1.0  # moving the embedding moves this token's logit and no other
        change = (head(hidden) - first).abs().sum(0)
    assert change.sum() == change[7] > 0


def test_a_pretrained_output_matrix_that_is_not_tied_stays_the_heads_own(load):
    loaded = load("eurobert", masked_lm=True)
    head, pretrained = load_masked_lm_head(loaded.source, loaded.model)
    assert pretrained
    stored = load_file(loaded.source.path / "model.safetensors")
    assert torch.equal(head.weight, stored["lm_head.weight"])
    assert not torch.equal(head.weight, loaded.model.get_input_embeddings().weight)
    absent = load("eurobert")
    head, pretrained = load_masked_lm_head(absent.source, absent.model)
    assert not pretrained
    assert head.weight is absent.model.get_input_embeddings().weight, "nothing of its own to learn from few rows"


@pytest.mark.parametrize("architecture", [name for name in MASKED_LM_ARCHITECTURES if name != "bart"])
def test_a_head_that_the_checkpoint_lacks_is_drawn_from_its_seed(architecture, load):
    loaded = load(architecture)
    state = torch.get_rng_state()
    hidden = torch.linspace(-1, 1, 64).view(2, 32)

    def logits(seed):
        head, pretrained = load_masked_lm_head(loaded.source, loaded.model, head_seed=seed)
        assert not pretrained
        return head(hidden).detach()

    embedding = loaded.model.get_input_embeddings().weight.detach().clone()
    first = logits(3)
    assert torch.equal(first, logits(3))
    if architecture not in ("xlnet", "eurobert"):  # their heads are the embedding (and a bias), with nothing to draw
        assert not torch.equal(first, logits(4))
    assert torch.equal(torch.get_rng_state(), state), "the caller's generator moved"
    assert torch.equal(loaded.model.get_input_embeddings().weight, embedding)
