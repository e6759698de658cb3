"""The table of encoder families, files that add to it, and how deep the parts of each family lie."""

from __future__ import annotations

import pytest

from regft_core.catalogue import FAMILIES
from regft_core.errors import ModelError, RegftError
from regft_core.models.architectures import architecture_of, architectures
from regft_core.models.families import SHIPPED
from regft_core.models.heads import depths
from tests.errors import raises_code
from tests.methods.harness import Bench
from tests.tiny import ARCHITECTURES, EMBEDDERS


@pytest.fixture
def folder(tmp_path, monkeypatch):
    """The folder ``families`` of a project."""
    (tmp_path / "families").mkdir()
    monkeypatch.setattr(FAMILIES, "own", tmp_path / "families")
    return tmp_path / "families"


def family(name, extra=""):
    return (
        "from regft_core.models.architectures import Architecture, LayerStack\n"
        f"FAMILY = Architecture({name!r}, stacks=(), head=(), hidden_dropout=(), attention_dropout=(){extra})\n"
    )


def test_every_family_has_a_tiny_checkpoint():
    rows = set(architectures().values())
    assert {row.module for row in rows} == {FAMILIES.package}
    assert {row.name.replace("-", "_") for row in rows} == set(SHIPPED)
    assert {row.name for row in rows} == {*ARCHITECTURES, *EMBEDDERS}
    assert set(architectures()) == {*ARCHITECTURES, *EMBEDDERS, "xlm-roberta", "camembert"}


@pytest.mark.parametrize(
    ("file", "content", "code", "named"),
    [
        ("empty", "", "bad-family-file", "families/empty.py"),
        ("elsewhere", family("wonderbert"), "bad-family-file", "wonderbert.py"),
        ("wonderbert", family("wonderbert", ", model_types=('bert',)"), "bad-family-file", "model_type 'bert'"),
        ("broken", "\n1 / 0\n", "cannot-import", "broken.py:2"),
    ],
)
def test_a_wrong_file_is_named_where_its_family_is_wanted(folder, file, content, code, named):
    (folder / f"{file}.py").write_text(content)
    assert architecture_of("bert").name == "bert"
    with raises_code(RegftError, code, named):
        architecture_of("wonderbert")


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
