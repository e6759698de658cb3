"""Heads of ours: poolings, windows, masks that are built for the encoder, and decoder-shaped text embedders."""

from __future__ import annotations

from dataclasses import replace

import pytest
import torch
from pydantic import ValidationError
from torch.nn import functional
from transformers import AutoModel

from regft_core.catalogue import POOLINGS
from regft_core.data.batches import collate, padding_of
from regft_core.data.encode import encode
from regft_core.data.examples import Example
from regft_core.data.prompts import Reading
from regft_core.errors import ModelError
from regft_core.models.architectures import prepared_mask
from regft_core.models.heads import PooledClassifier, pair_features
from regft_core.models.load import load_masked_lm_head
from regft_core.models.sites import classify, find_sites
from regft_core.models.source import encoder_problems
from regft_core.models.write_model import export_model
from regft_core.schema import DropoutConfig
from regft_core.schema.training import EncoderConfig
from regft_core.training.step import repeat_batch
from tests.errors import raises_code
from tests.methods.harness import Bench
from tests.small_project import also
from tests.tiny import ARCHITECTURES, EMBEDDERS, tiny_model_dir

every = pytest.mark.parametrize("architecture", ARCHITECTURES)
HOW = ("cls", "mean", "unit_mean", "mean_last_four")
#: Every family with one of them in turn, and one family with each.
PLACES = [(name, HOW[number % 4]) for number, name in enumerate(ARCHITECTURES)]
PLACES += [("xlnet", how) for how in HOW] + [(name, HOW[3]) for name in ("bart", "deberta", "modernbert", "qwen3")]
both = pytest.mark.parametrize(("architecture", "how"), sorted(set(PLACES)))


@both
def test_the_logits_are_one_linear_on_the_pooled_states_of_the_plain_encoder(architecture, how, load):
    loaded = load(architecture, pooling=how)
    assert isinstance(loaded.model, PooledClassifier)
    batch = loaded.batch()
    encoder = AutoModel.from_pretrained(loaded.source.path).eval()
    with torch.no_grad():
        outputs, mask = encoder(**batch, output_hidden_states=True), batch["attention_mask"]
        states = [*(outputs.decoder_hidden_states if architecture == "bart" else outputs.hidden_states)][1:-1][-3:]
        wanted = []
        for row in range(3):
            real = outputs.last_hidden_state[row][mask[row] == 1]
            summary = real[-1] if architecture in ("xlnet", "bart", "qwen3") else real[0]
            mean = real.mean(0) / (real.mean(0).norm() if how == "unit_mean" else 1)
            if how == "mean_last_four":
                means = [*(layer[row][mask[row] == 1].mean(0) for layer in states), mean]
                mean = torch.cat([one / one.square().mean().sqrt() for one in means])
            wanted.append(mean if "mean" in how else summary)
        head = dict(loaded.model.named_parameters())
        expected = functional.linear(torch.stack(wanted), head["classifier.weight"], head["classifier.bias"])
        assert torch.allclose(classify(loaded.model, batch)[0], expected, atol=1e-5)


def test_a_pooling_is_one_file_which_an_export_refuses(load, tmp_path):
    largest = "hidden.masked_fill(mask.unsqueeze(-1) == 0, -1e9).amax(1)"
    (tmp_path / "largest.py").write_text(f"def pool(hidden, mask, summary):\n    return {largest}\n")
    with raises_code(ModelError, "pooling-not-exported"), also(POOLINGS, tmp_path):
        assert EncoderConfig(name="minilm", pooling="largest").pooling == "largest"
        batch = (loaded := load("bert", pooling="largest")).batch()
        with torch.no_grad():
            hidden = loaded.model.base_model(**batch)[0]
            wanted = [row[mask == 1].max(0).values for row, mask in zip(hidden, batch["attention_mask"], strict=True)]
            expected = loaded.model.classifier(torch.stack(wanted))
        assert torch.allclose(classify(loaded.model, batch)[0], expected, atol=1e-6)
        export_model(loaded.model, loaded.tokenizer, tmp_path / "out", card="", check_batch=batch, max_length=32)
    with pytest.raises(ValidationError, match="allowed: head, mask"):
        EncoderConfig(name="minilm", pooling="largest")


@both
def test_nothing_of_the_model_is_left_out_of_the_loss(architecture, how, load):
    loaded = load(architecture, pooling=how)
    assert not any("pooler" in name for name, _ in loaded.model.named_parameters())
    logits, _ = classify(loaded.model.train(), loaded.batch())
    logits.square().sum().backward()
    without = {name for name, value in loaded.model.named_parameters() if value.grad is None}
    # XLNet's second stream and its segments of a single text belong to pretraining and to pairs.
    assert not {name for name in without if "mask_emb" not in name and "seg_embed" not in name}


@every
def test_the_head_is_one_linear_and_the_encoder_keeps_its_names(architecture, load):
    pooled, own = load(architecture, pooling="mean").model, load(architecture).model
    sites = find_sites(pooled)
    assert sites.head == ("classifier.weight", "classifier.bias")
    prefix = f"{own.base_model_prefix}."
    names = {name for name, _ in pooled.named_parameters() if name not in sites.head}
    assert names <= {name for name, _ in own.named_parameters()}
    assert [site.name for site in sites.layers] == [site.name for site in find_sites(own).layers]
    outside = {name for name in find_sites(own).mixable if "pooler" not in name and name.startswith(prefix)}
    assert set(sites.mixable) == outside
    assert sites.perturbable == find_sites(own).perturbable
    assert not any(sites.no_decay(name) for name in sites.mixable)


@pytest.mark.parametrize("architecture", [name for name in ARCHITECTURES if name != "eurobert"])
def test_the_dropout_before_the_head_is_the_familys(architecture, load):
    assert load(architecture, pooling="mean", dropout=DropoutConfig()).model.dropout.p == 0.1
    chosen = load(architecture, pooling="mean", dropout=DropoutConfig(hidden=0.25, attention=0.25))
    assert chosen.model.dropout.p == 0.25


def test_half_the_rows_are_the_second_texts():
    first, second = torch.randn(3, 4), torch.randn(3, 4)
    rows = torch.stack([first, second], 1).reshape(6, 4)
    features = pair_features(rows)
    u, v = (vector * 2 / vector.norm(dim=1, keepdim=True) for vector in (first, second))  # 2: the root of H = 4
    assert torch.allclose(features, torch.cat([u, v, (u - v).abs(), u * v], 1), atol=1e-6)
    cosine = torch.nn.functional.cosine_similarity(first, second)
    assert torch.allclose(features[:, 12:].mean(1), cosine, atol=1e-6)
    assert torch.allclose(pair_features(rows * torch.rand(6, 1)), features, atol=1e-5), "lengths do not count"
    assert pair_features(torch.zeros(2, 4)).isfinite().all()


@pytest.mark.parametrize("attention", ["sdpa", "eager"])
@pytest.mark.parametrize("architecture", ARCHITECTURES)
def test_logits_are_the_same_bits(architecture: str, attention: str) -> None:
    bench = Bench(architecture=architecture, pair=True, attention=attention)
    bench.model.eval()
    for rows, padded in (range(4), True), ([0, 0], False):
        batch = bench.stream.collate(rows)
        assert batch.padded is padded
        found, prepared = (classify(bench.model, batch.model_inputs(), True, known) for known in (None, padded))
        assert all(torch.equal(one, other) for one, other in zip(found, prepared, strict=True))


def test_an_unknown_mask_and_a_family_that_builds_its_own_get_the_mask_itself() -> None:
    for architecture, padded in (("bert", None), ("xlnet", True), ("deberta", False)):
        bench = Bench(architecture=architecture)
        mask = bench.stream.collate(range(4)).attention_mask
        assert prepared_mask(bench.model.base_model, mask, padded) is mask


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
@pytest.mark.parametrize(("how", "rows"), [("cls", 1), ("last", 1), ("mean", 1), ("unit_mean", 1), ("mean", 2)])
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


@pytest.mark.parametrize("how", ["cls", "last", "mean", "unit_mean", "mean_last_four"])
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


# ------------------------------------------- Qwen3-Embedding (last token) and EmbeddingGemma (mean, two-way attention)


every_embedder = pytest.mark.parametrize("architecture", EMBEDDERS)


@every_embedder
@pytest.mark.parametrize("side", ["left", "right"])
@pytest.mark.parametrize("attention", ["sdpa", "eager"])
def test_features_are_those_of_transformers_with_padding_on_either_side(architecture, side, attention, load):
    pooling = EMBEDDERS[architecture]
    loaded = load(architecture, pooling=pooling)
    loaded.model.base_model.set_attn_implementation(attention)
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


@every_embedder
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
