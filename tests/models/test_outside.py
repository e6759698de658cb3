"""A model folder from elsewhere: it leads nowhere else, runs no code, and chooses no kernel."""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import Any

import pytest
from safetensors.torch import load_file, save_file

from regft_core.data.examples import Example
from regft_core.errors import ModelError
from regft_core.models.checkpoint_files import refuse_outside
from regft_core.models.exported_folder import load_with_tokenizer
from regft_core.models.source import encoder_problems, resolve_model
from regft_core.schema.training import EncoderConfig
from regft_core.serve.model import load_served
from tests.errors import raises_code
from tests.models.conftest import edited
from tests.tiny import tiny_model_dir

TEXTS = [Example("0", "good film", None, 0), Example("1", "the story was bad", None, 0)]
EVIL = "evil/kernels"


@pytest.fixture(scope="module")
def sound(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A classifier of the family's own."""
    from transformers import AutoModelForSequenceClassification

    folder = Path(tiny_model_dir(tmp_path_factory.mktemp("outside"), "bert"))
    model = AutoModelForSequenceClassification.from_pretrained(folder)
    model.save_pretrained(folder)
    return folder


@pytest.fixture
def folder(sound: Path, tmp_path: Path) -> Path:
    return Path(shutil.copytree(sound, tmp_path / "model"))


@pytest.mark.parametrize("shard", ["../secret.safetensors", "/etc/passwd", 3])
def test_shards_outside_of_the_folder_are_refused(folder: Path, shard: Any) -> None:
    tensors = load_file(folder / "model.safetensors")
    save_file(tensors, folder.parent / "secret.safetensors", metadata={"format": "pt"})
    (folder / "model.safetensors").unlink()
    edited(folder / "model.safetensors.index.json", weight_map=dict.fromkeys(tensors, shard))
    with raises_code(ModelError, "leads-elsewhere", "weight_map"):
        load_served(folder, "cpu")
    with raises_code(ModelError, "leads-elsewhere"):
        resolve_model(EncoderConfig(name=str(folder)), folder.parent)


@pytest.mark.parametrize(
    ("file", "key", "value"),
    [
        ("tokenizer_config.json", "vocab_file", "/etc/passwd"),
        ("tokenizer_config.json", "fast_tokenizer_files", ["tokenizer.json", "../tokenizer.5.0.json"]),
        ("config.json", "transformers_weights", "../secret.safetensors"),
    ],
)
def test_other_files_outside_of_the_folder_are_refused(folder: Path, file: str, key: str, value: Any) -> None:
    edited(folder / file, **{key: value})
    with raises_code(ModelError, "leads-elsewhere", file, key):
        load_served(folder, "cpu")
    assert "leads-elsewhere" in [code for _, code, _ in encoder_problems(EncoderConfig(name=str(folder)), folder)]


def test_links_out_of_the_folder_are_refused_but_those_of_the_hubs_cache(folder: Path, tmp_path: Path) -> None:
    snapshot, blobs = tmp_path / "hub" / "snapshots" / "abc", tmp_path / "hub" / "blobs"
    shutil.copytree(folder, snapshot)
    blobs.mkdir()
    shutil.move(snapshot / "config.json", blobs / "1")
    (snapshot / "config.json").symlink_to(Path("../../blobs/1"))
    refuse_outside(snapshot)
    shutil.move(folder / "tokenizer.json", tmp_path / "tokenizer.json")
    (folder / "tokenizer.json").symlink_to(tmp_path / "tokenizer.json")
    with raises_code(ModelError, "leads-elsewhere", folder / "tokenizer.json"):
        load_served(folder, "cpu")


def test_an_adapter_is_refused(folder: Path) -> None:
    edited(folder / "adapter_config.json", base_model_name_or_path="/elsewhere", peft_type="LORA")
    with raises_code(ModelError, "adapter-in-encoder", "merge_and_unload"):
        load_served(folder, "cpu")


@pytest.mark.parametrize("key", ["attn_implementation", "_attn_implementation"])
def test_a_kernel_of_a_foreign_config_is_ignored_with_a_warning(folder: Path, capsys: Any, key: str) -> None:
    expected = load_served(folder, "cpu").scores(TEXTS)
    assert capsys.readouterr().err == ""
    edited(folder / "config.json", **{key: EVIL})
    served = load_served(folder, "cpu")
    assert f'{key} is "{EVIL}", which is ignored' in capsys.readouterr().err
    assert (served.scores(TEXTS) == expected).all()
    assert load_with_tokenizer(folder)[0].config._attn_implementation != EVIL


def test_code_of_a_foreign_model_is_never_run(folder: Path, capsys: Any) -> None:
    code = folder / "modeling_evil.py"
    code.write_text(
        "from pathlib import Path\nPath(__file__).with_name('ran').touch()\nclass Evil: pass\nclass EvilConfig: pass\n"
    )
    named = {"AutoConfig": "modeling_evil.EvilConfig", "AutoModelForSequenceClassification": "modeling_evil.Evil"}
    edited(folder / "config.json", auto_map=named)
    edited(folder / "tokenizer_config.json", auto_map={"AutoTokenizer": ["modeling_evil.Evil", "modeling_evil.Evil"]})
    load_served(folder, "cpu").scores(TEXTS)
    assert capsys.readouterr().err.count("(auto_map), which is not run") == 2
    edited(folder / "config.json", model_type="evil")  # nothing else could read it
    with raises_code(ModelError, "cannot-load"):
        load_served(folder, "cpu")
    assert not (folder / "ran").exists()


@pytest.mark.parametrize(("family", "most"), [("bert", 160), ("roberta", 158), ("mpnet", 158)])
def test_a_foreign_model_reads_as_many_tokens_as_it_has_positions(tmp_path: Path, family: str, most: int) -> None:
    """RoBERTa and MPNet count positions from the one behind the padding's."""
    from transformers import AutoModelForSequenceClassification

    folder = Path(tiny_model_dir(tmp_path, family))
    AutoModelForSequenceClassification.from_pretrained(folder).save_pretrained(folder)
    edited(folder / "tokenizer_config.json", model_max_length=None)
    served = load_served(folder, "cpu")
    assert served.served.max_length == most
    assert served.scores([Example("0", "good film " * 100, None, 0)]).shape == (1, 2)


def test_pickled_weights_are_not_opened(folder: Path) -> None:
    class Ran:
        def __reduce__(self) -> tuple[Any, ...]:
            return Path.touch, (folder / "ran",)

    import pickle

    (folder / "model.safetensors").unlink()
    (folder / "pytorch_model.bin").write_bytes(pickle.dumps({"a": Ran()}))
    with raises_code(ModelError, "cannot-load"):
        load_served(folder, "cpu")
    assert not (folder / "ran").exists()
