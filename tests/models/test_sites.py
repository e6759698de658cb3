from __future__ import annotations

import pytest
import torch
from torch import nn
from torch.nn import functional

from regft_core.models.sites import SiteHooks, classify, find_sites
from tests.models.conftest import HEADS, every_head
from tests.tiny import EMBEDDERS

CALLS = {"bart": 4}  # 2 encoder and 2 decoder layers; 2 everywhere else (ALBERT: one module, called twice)

#: The first linear of the feed-forward block in each layer.
FIRST_LINEAR = {
    "xlnet": "ff.layer_1",
    "bart": "fc1",
    "distilbert": "ffn.lin1",
    "albert": "ffn",
    "modernbert": "mlp.Wi",
    "eurobert": "mlp.gate_proj",
    "gte": "mlp.gate_proj",
}
#: Families whose layers normalise what enters a block, and the norm before the feed-forward block.
PRE_NORM = {"modernbert": "mlp_norm", "eurobert": "post_attention_layernorm"}
every_family = pytest.mark.parametrize(("architecture", "pooling"), [*HEADS, *EMBEDDERS.items()])


def logits_of(loaded, batch=None, seed=0):
    """Logits of one pass whose dropout, if any, is always the same."""
    with torch.random.fork_rng():
        torch.manual_seed(seed)
        return classify(loaded.model, batch or loaded.batch())[0]


@every_head
def test_layers_are_visited_once_each_in_order_and_see_the_output_of_the_one_before(architecture, pooling, load):
    loaded = load(architecture)
    sites = find_sites(loaded.model)
    assert [site.index for site in sites.layers] == list(range(CALLS.get(architecture, 2)))
    assert sites.embedding_layers == ((0, 2) if architecture == "bart" else (0,))
    visits, seen = [], {}
    hooks = SiteHooks(loaded.model, sites)

    def visited(kind):
        def look(tensor, site):
            visits.append((kind, site.index, tensor.shape))
            seen[kind, site.index] = tensor.detach()
            return tensor

        return look

    hooks.on_layer_input(visited("input"))
    hooks.on_after_attention(visited("after"))
    hooks.on_layer_output(visited("output"))
    loaded.model.train()
    batch = loaded.batch()
    rows, length = batch["input_ids"].shape
    shape = (length, rows, 32) if architecture == "xlnet" else (rows, length, 32)
    for _ in range(2):
        visits.clear()
        logits_of(loaded, batch)
        assert visits == [(kind, i, shape) for i in range(len(sites.layers)) for kind in ("input", "after", "output")]
    for index in {*range(len(sites.layers))} - {*sites.embedding_layers}:
        # In DeBERTa v2 a convolution over the embeddings joins after layer 0.
        joined = architecture == "deberta-v2" and index == 1
        assert torch.equal(seen["input", index], seen["output", index - 1]) == (not joined)
    assert {site.batch_dim for site in sites.layers} == {1 if architecture == "xlnet" else 0}


@every_head
def test_word_embeddings_are_seen_as_looked_up_and_once_per_stack(architecture, pooling, load):
    loaded = load(architecture)
    model, sites = loaded.model.train(), find_sites(loaded.model)
    hooks, seen = SiteHooks(model, sites), []
    hooks.on_word_embedding(lambda tensor, site: seen.append((site, tensor.detach().clone())) or tensor)
    batch = loaded.batch()
    for _ in range(2):  # the count starts again with every pass
        seen.clear()
        logits_of(loaded, batch)
        stacks = ["encoder", "decoder"] if architecture == "bart" else ["encoder"]
        assert [(site.index, site.stack) for site, _ in seen] == list(enumerate(stacks))
    site, tensor = seen[0]
    rows = tensor.transpose(0, 1) if site.batch_dim == 1 else tensor
    assert torch.equal(rows, sites.word_embedding.weight[batch["input_ids"]])


@every_head
def test_the_tensor_at_a_site_is_all_that_the_rest_of_the_layer_sees(architecture, pooling, load):
    # With a constant in its place nothing of the texts is left, so the residual path uses it as well.
    loaded = load(architecture)
    sites = find_sites(loaded.model)
    one, two = loaded.batch("the film was great"), loaded.batch("a house is old")
    assert one["input_ids"].shape == two["input_ids"].shape
    plain = logits_of(loaded, one)
    assert not torch.allclose(plain, logits_of(loaded, two), atol=1e-4)
    value = {"scale": 1.0}

    def constant(tensor, site):
        return value["scale"] * torch.linspace(-1, 1, tensor.shape[-1]).sin().expand_as(tensor)

    for place in ("on_layer_input", "on_after_attention", "on_layer_output"):
        always, training = SiteHooks(loaded.model, sites), SiteHooks(loaded.model, sites)
        getattr(always, place)(constant, always=True)
        value["scale"] = 1.0
        first = logits_of(loaded, one)
        assert torch.allclose(first, logits_of(loaded, two), atol=1e-6), place
        value["scale"] = -1.0
        assert not torch.allclose(first, logits_of(loaded, one), atol=1e-3), place
        always.remove()
        getattr(training, place)(constant)
        assert torch.equal(logits_of(loaded, one), plain), place
        loaded.model.train()
        assert not torch.allclose(logits_of(loaded, one), plain, atol=1e-4), place
        loaded.model.eval()
        training.remove()


@every_head
def test_after_attention_is_what_enters_the_feed_forward_block(architecture, pooling, load):
    loaded = load(architecture)
    sites = find_sites(loaded.model)
    last = sites.layers[-1]
    entered = []
    first_linear = last.module.get_submodule(FIRST_LINEAR.get(architecture, "intermediate.dense"))
    first_linear.register_forward_pre_hook(lambda _module, args: entered.append(args[0]))
    hooks = SiteHooks(loaded.model, sites)
    replaced = []

    def replace(tensor, site):
        replaced.append(torch.randn_like(tensor))
        return replaced[-1]

    hooks.on_after_attention(replace, layers=[last.index], always=True)
    logits_of(loaded)
    assert len(replaced) == 1
    hooks.remove()
    wanted = replaced[0]
    if architecture in PRE_NORM:
        wanted = last.module.get_submodule(PRE_NORM[architecture])(wanted)
    assert torch.equal(entered[-1], wanted)


@pytest.mark.parametrize("architecture", sorted(PRE_NORM))
def test_before_a_norm_the_residual_stream_is_the_site(architecture, load):
    loaded = load(architecture)
    sites = find_sites(loaded.model)
    site, kept = sites.layers[0], {}
    block = site.module.mlp
    attention = site.module.attn if architecture == "modernbert" else site.module.self_attn
    attention.register_forward_hook(lambda _m, _a, out: kept.update(attention=out[0]))
    block.register_forward_hook(lambda _m, _a, out: kept.update(feed_forward=out))
    site.module.register_forward_pre_hook(lambda _m, args: kept.update(before=args[0]))
    site.module.register_forward_hook(lambda _m, _a, out: kept.update(after=out))
    hooks, scale = SiteHooks(loaded.model, sites), nn.Parameter(torch.full((32,), 1.5))

    def change(tensor, site):
        kept["seen"] = tensor.detach().clone()
        kept["given"] = (tensor * scale + tensor.square()).relu()
        return kept["given"]

    hooks.on_after_attention(change, layers=[0], always=True)
    logits = logits_of(loaded)
    assert torch.equal(kept["seen"], kept["before"] + kept["attention"])
    assert torch.equal(kept["after"], kept["given"] + kept["feed_forward"]), "the residual sees the change, exactly"
    logits.square().sum().backward()  # nothing that the function kept for this was overwritten
    assert scale.grad.abs().sum() > 0
    assert loaded.model.get_input_embeddings().weight.grad.isfinite().all()


@every_head
def test_a_pass_that_breaks_off_does_not_shift_the_next(architecture, pooling, load):
    loaded = load(architecture)
    loaded.model.train()
    hooks = SiteHooks(loaded.model, find_sites(loaded.model))
    seen = []

    def stop_once(tensor, site):
        seen.append(site.index)
        if len(seen) == 1:
            raise KeyboardInterrupt
        return tensor

    hooks.on_layer_input(stop_once)
    with pytest.raises(KeyboardInterrupt):
        logits_of(loaded)
    logits_of(loaded)
    assert seen == [0, *range(CALLS.get(architecture, 2))]


@every_family
def test_mixable_matrices_are_pretrained_and_get_gradients(architecture, pooling, load):
    loaded = load(architecture)
    sites, parameters = find_sites(loaded.model), dict(loaded.model.named_parameters())
    loaded.model.train()
    functional.cross_entropy(logits_of(loaded), torch.tensor([0, 1, 2])).backward()
    assert len(set(sites.mixable)) == len(sites.mixable)
    for name in sites.mixable:
        assert parameters[name].dim() == (3 if name.split(".")[-1] in "qkvor" else 2), name
        assert parameters[name].grad.abs().sum() > 0, name
    assert not set(sites.mixable) & set(sites.head)
    assert not any("embeddings." in name or "word_embedding" in name for name in sites.mixable)
    linears = {name for name, child in loaded.model.named_modules() if isinstance(child, nn.Linear)}
    inside = {f"{name}.weight" for name in linears for site in sites.layers if name.startswith(f"{site.name}.")}
    assert inside
    assert inside <= set(sites.mixable), "every linear inside the layers is mixable"


@every_family
def test_perturbable_are_weights_and_biases_of_the_layers_and_biases_and_norms_have_no_decay(
    architecture, pooling, load
):
    loaded = load(architecture)
    sites = find_sites(loaded.model)
    norms = {
        f"{name}.{own}"
        for name, module in loaded.model.named_modules()
        if "norm" in type(module).__name__.lower()
        for own, _ in module.named_parameters(recurse=False)
    }
    assert norms == sites.layer_norms
    assert not norms & set(sites.perturbable)
    for name in sites.perturbable:
        assert any(name.startswith(f"{site.name}.") for site in sites.layers), name
        assert "embed" not in name
    for site in sites.layers:  # nothing else is left out
        for own, _ in site.module.named_parameters():
            name = f"{site.name}.{own}"
            assert name in sites.perturbable or name in norms or name.endswith("seg_embed"), name
    without_bias = architecture in PRE_NORM or architecture in EMBEDDERS
    assert any(name.endswith("bias") for name in sites.perturbable) != without_bias
    embedding = next(n for n, p in loaded.model.named_parameters() if p is sites.word_embedding.weight)
    assert not any(sites.no_decay(name) for name in (*sites.mixable, embedding))
    biases = {name for name, _ in loaded.model.named_parameters() if name.endswith("bias")}
    assert all(sites.no_decay(name) for name in norms | biases)


@every_head
def test_classify_returns_the_hidden_states_that_the_head_receives_whatever_the_padding(architecture, pooling, load):
    loaded = load(architecture)
    batch = loaded.batch()
    logits, hidden = classify(loaded.model, batch, need_hidden=True)
    assert logits.shape == (3, 3)
    assert hidden.shape == (*batch["input_ids"].shape, 32)
    (gradient,) = torch.autograd.grad(logits.sum(), hidden)
    assert gradient.abs().sum() > 0
    again, nothing = classify(loaded.model, batch)
    assert torch.equal(again, logits)
    assert nothing is None
    alone = logits_of(loaded, loaded.batch("no"))  # the last text, without padding
    assert torch.allclose(alone[0], logits[2], atol=1e-5)


@pytest.mark.parametrize("architecture", ["bert", "bart", "xlnet"])
def test_a_text_that_spells_tokens_of_the_tokenizer_is_read_as_text(architecture, load):
    """Web pages have ``</s>`` as a tag; BART's head reads the last one of a row."""
    loaded = load(architecture)
    tokenizer = loaded.tokenizer
    added = {*tokenizer.all_special_ids} - {tokenizer.unk_token_id}
    text = f"the film {tokenizer.sep_token} was good {tokenizer.mask_token} {tokenizer.pad_token}"
    kept, plain = ([t for t in tokenizer(one)["input_ids"] if t in added] for one in (text, "the film was good"))
    assert kept == plain
    assert classify(loaded.model, loaded.batch(text, "a bad movie"))[0].isfinite().all()


@pytest.mark.parametrize("architecture", ["bert", "electra", "xlnet", "deberta", "albert"])
def test_segments_matter_where_the_family_has_them(architecture, load):
    loaded = load(architecture)
    batch = loaded.batch()
    segments = torch.zeros_like(batch["input_ids"])
    segments[:, 2:4] = 1
    # The tiny DeBERTa, like the released ones, has no segment embedding.
    same = torch.equal(logits_of(loaded, {**batch, "token_type_ids": segments}), logits_of(loaded, batch))
    assert same == (architecture == "deberta")
