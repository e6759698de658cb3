from __future__ import annotations

import pytest
import torch
from torch import nn
from torch.nn.utils import parametrize
from transformers import AutoModelForSequenceClassification

from regft_core.errors import ExportMismatch, ModelError
from regft_core.models.sites import SiteHooks, classify, find_sites
from regft_core.models.write_model import export_model, fold
from tests.errors import raises_code


class Double(nn.Module):
    def forward(self, weight):
        return 2.0 * weight


def export(loaded, directory, **changes):
    options = {"card": "# card\n", "check_batch": loaded.batch(), "max_length": 32, **changes}
    return export_model(loaded.model, loaded.tokenizer, directory, **options)


def leftovers(path):
    return sorted(child.name for child in path.iterdir())


@pytest.mark.parametrize("architecture", ["bert", "xlnet", "albert"])
def test_parametrized_weights_are_folded_and_the_model_keeps_them(architecture, load, tmp_path):
    loaded = load(architecture)
    plain = classify(loaded.model, loaded.batch())[0]
    name = find_sites(loaded.model).mixable[1]
    module_name, tensor = name.rsplit(".", 1)
    module = loaded.model.get_submodule(module_name)
    original = getattr(module, tensor).detach().clone()
    parametrize.register_parametrization(module, tensor, Double())
    doubled = classify(loaded.model, loaded.batch())[0]
    assert not torch.allclose(plain, doubled)

    directory = export(loaded, tmp_path / "out")
    model = AutoModelForSequenceClassification.from_pretrained(directory)
    assert torch.equal(model.get_parameter(name), 2.0 * original)
    assert not any("parametrizations" in key for key in model.state_dict())
    assert torch.equal(classify(model, loaded.batch())[0], doubled)
    assert parametrize.is_parametrized(module, tensor), "the trained model itself is not changed"


def test_training_hooks_stay_behind(load, tmp_path):
    loaded = load("bert")
    expected = classify(loaded.model, loaded.batch())[0]
    hooks = SiteHooks(loaded.model, find_sites(loaded.model))
    hooks.on_layer_input(lambda tensor, site: tensor + 1.0)
    plain = fold(loaded.model.train())
    assert torch.equal(classify(plain.train(False), loaded.batch())[0], expected)
    export(loaded, tmp_path / "out")
    assert loaded.model.training, "the mode of the model is restored"
    assert leftovers(tmp_path) == ["out"]


def test_something_that_acts_in_evaluation_outside_the_weights_is_a_mismatch(load, tmp_path):
    loaded = load("bert")
    hooks = SiteHooks(loaded.model, find_sites(loaded.model))
    hooks.on_layer_input(lambda tensor, site: tensor * 1.5, always=True)
    with raises_code(ExportMismatch, "export-differs"):
        export(loaded, tmp_path / "out")
    assert leftovers(tmp_path) == []


def test_parameters_that_would_be_lost_are_an_error(load, tmp_path):
    loaded = load("bert")
    loaded.model.confidence = nn.Linear(32, 1)
    with raises_code(ModelError, "does-not-fold", "confidence.weight"):
        export(loaded, tmp_path / "out")
    assert leftovers(tmp_path) == []


def test_a_directory_of_something_else_is_not_replaced(load, tmp_path):
    (tmp_path / "notes.txt").write_text("mine")
    with raises_code(ModelError, "in-the-way"):
        export(load("bert"), tmp_path)
    assert (tmp_path / "notes.txt").read_text() == "mine"
