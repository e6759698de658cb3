"""Depths of parameters: embeddings below, layers in order, poolers and heads above."""

from __future__ import annotations

import pytest

from regft_core.errors import ModelError
from regft_core.models.heads import depths
from tests.errors import raises_code
from tests.methods.harness import Bench


def of(architecture: str) -> dict[str, int]:
    bench = Bench(architecture=architecture)
    return depths(bench.model, bench.trainee.sites, bench.trainee.plain_names)


@pytest.mark.parametrize(
    ("architecture", "expected"),
    [
        (
            "bert",
            {
                "bert.embeddings.word_embeddings.weight": 0,
                "bert.embeddings.LayerNorm.bias": 0,
                "bert.encoder.layer.0.attention.self.query.weight": 1,
                "bert.encoder.layer.1.output.LayerNorm.weight": 2,
                "bert.pooler.dense.weight": 3,
                "classifier.bias": 3,
            },
        ),
        # Relative positions are registered behind the layers, but every layer reads them.
        ("deberta", {"deberta.encoder.rel_embeddings.weight": 0, "pooler.dense.weight": 3, "classifier.weight": 3}),
        ("mpnet", {"mpnet.encoder.relative_attention_bias.weight": 0, "classifier.out_proj.weight": 3}),
        ("electra", {"electra.embeddings_project.weight": 0, "classifier.dense.weight": 3}),
        ("modernbert", {"model.final_norm.weight": 3, "head.dense.weight": 3, "model.embeddings.norm.weight": 0}),
        ("eurobert", {"model.norm.weight": 3, "model.embed_tokens.weight": 0, "model.layers.1.mlp.up_proj.weight": 2}),
        ("xlnet", {"transformer.mask_emb": 0, "transformer.layer.1.rel_attn.q": 2, "logits_proj.weight": 3}),
        (
            "bart",
            {
                "model.shared.weight": 0,
                "model.encoder.layers.1.fc1.weight": 2,
                "model.decoder.layers.0.fc1.weight": 3,
                "model.decoder.layers.1.fc1.weight": 4,
                "classification_head.dense.weight": 5,
            },
        ),
    ],
)
def test_depths_of_each_part(architecture: str, expected: dict[str, int]) -> None:
    found = of(architecture)
    assert {name: found[name] for name in expected} == expected


def test_depths_do_not_change_under_a_weight_view() -> None:
    bench = Bench([("weight_mixup", {"attention": "random"})])
    assert depths(bench.model, bench.trainee.sites, bench.trainee.plain_names) == of("bert")


def test_shared_layers_have_no_depth() -> None:
    with raises_code(ModelError, "layers-shared"):
        of("albert")
