from __future__ import annotations

import dataclasses
import os
import shutil
from pathlib import Path

import pytest

from regft_core.errors import InputChanged, ModelError
from regft_core.models import source as module
from regft_core.models.architectures import architecture_of
from regft_core.models.checkpoint_files import position_count
from regft_core.models.sites import classify
from regft_core.models.source import encoder_problems, encoder_weights, resolve_model
from regft_core.schema.training import EncoderConfig
from tests.errors import raises_code
from tests.models.conftest import edited


def resolve(path, root=Path(".")):
    return resolve_model(EncoderConfig(name=str(path)), root)


def test_hashes_depend_on_the_bytes_and_not_on_the_place(own, tmp_path):
    first = resolve(own)
    copy = resolve(shutil.copytree(own, tmp_path / "copy"))
    assert (copy.content_sha256, copy.tokenizer_sha256) == (first.content_sha256, first.tokenizer_sha256)

    (own / "notes.md").write_text("unrelated")
    assert resolve(own).content_sha256 == first.content_sha256

    weights = bytearray((own / "model.safetensors").read_bytes())
    weights[-1] ^= 1
    (own / "model.safetensors").write_bytes(weights)
    changed = resolve(own)
    assert changed.content_sha256 != first.content_sha256
    assert changed.tokenizer_sha256 == first.tokenizer_sha256

    (own / "tokenizer_config.json").write_text("{}")
    assert resolve(own).tokenizer_sha256 != first.tokenizer_sha256
    assert resolve(own).content_sha256 == changed.content_sha256


def remove(own, name="tokenizer.json"):
    (own / name).unlink()


def rewrite(own, content="{}", name="config.json"):
    (own / name).write_text(content)


def shard(own):
    remove(own, "model.safetensors")
    rewrite(own, '{"weight_map": {"a": "model-00001-of-00002.safetensors"}}', "model.safetensors.index.json")


@pytest.mark.parametrize(
    ("edit", "code", "said"),
    [
        (remove, "tokenizer-missing", "save_pretrained"),
        (lambda own: (own / "model.safetensors").rename(own / "pytorch_model.bin"), "pickled-weights", "pickle"),
        (lambda own: remove(own, "model.safetensors"), "weights-missing", "model.safetensors"),
        (shard, "weights-missing", "model-00001-of-00002"),
        (lambda own: edited(own / "config.json", model_type="robeta"), "unknown-family", "roberta"),
        (
            lambda own: edited(own / "config.json", transformers_weights="b"),
            "other-weights",
            "transformers_weights",
        ),
        (lambda own: remove(own, "config.json"), "file-missing", "config.json"),
        (lambda own: rewrite(own, "{"), "damaged-json", "config.json"),
        (lambda own: rewrite(own, name="adapter_config.json"), "adapter-in-encoder", "merge_and_unload"),
        (lambda own: rewrite(own, name="adapter_model.safetensors"), "adapter-in-encoder", "merge_and_unload"),
    ],
)
def test_a_directory_that_is_no_safe_encoder_is_refused(own, edit, code, said):
    edit(own)
    with raises_code(ModelError, code, said):
        resolve(own)
    if code != "damaged-json":
        assert code in {found for _, found, _ in encoder_problems(EncoderConfig(name="own"), own.parent)}


@pytest.mark.parametrize("name", ["someone/some-model", "./nowhere", "/nowhere/at/all", "a b", "one/two/three"])
def test_a_name_that_leads_to_no_encoder_is_refused(name, own):
    with raises_code(ModelError, "model-missing", name):
        resolve_model(EncoderConfig(name=name), own.parent)
    assert resolve("own", own.parent).path == own.resolve()


@pytest.mark.parametrize(
    ("architecture", "longest", "limited"),
    [
        *(("bert", 160, True), ("roberta", 158, True), ("mpnet", 158, True), ("bart", 160, True)),
        *(("deberta", 160, True), ("modernbert", 160, True), ("xlnet", 200, False), ("deberta-v2", 200, False)),
    ],
)
def test_the_longest_allowed_input_runs_and_no_longer_one(architecture, longest, limited, load):
    loaded = load(architecture)
    path = str(loaded.source.path)
    resolve_model(EncoderConfig(name=path, max_length=longest), Path("."))
    batch = loaded.tokenizer("no " * 300, truncation=True, max_length=longest, return_tensors="pt")
    assert batch["input_ids"].shape[1] == longest
    assert classify(loaded.model, batch)[0].isfinite().all()
    if limited:
        with raises_code(ModelError, "input-too-long", f"for {longest} only"):
            resolve_model(EncoderConfig(name=path, max_length=longest + 1), Path("."))


def test_mpnet_counts_positions_from_one_whatever_its_padding_is(load):
    """Its configuration may name another padding, which its code does not read."""
    config = load("mpnet").model.config.to_dict() | {"pad_token_id": 0}
    assert position_count(config, architecture_of("mpnet")) == 158


@pytest.mark.parametrize(("architecture", "weights"), [("bert", 16384), ("xlnet", 16384), ("distilbert", 16384)])
def test_the_weights_of_a_folder_are_counted_whatever_its_family_calls_its_sizes(architecture, weights, load):
    assert encoder_weights(str(load(architecture).source.path), Path(".")) == weights


def in_place(path):
    """Other bytes, the same size and times, the same file."""
    status, content = path.stat(), bytearray(path.read_bytes())
    content[-1] ^= 1
    path.write_bytes(content)
    os.utime(path, ns=(status.st_atime_ns, status.st_mtime_ns))


@pytest.mark.parametrize("file", ["model.safetensors", "config.json", "tokenizer.json"])
def test_files_that_changed_since_they_were_hashed_are_not_read(own, file):
    source = resolve(own)
    assert source.opened() == own.resolve()
    in_place(own / file)
    with pytest.raises(InputChanged, match=rf"encoder .*{file} was replaced"):
        source.opened()


def test_a_hub_model_is_a_snapshot_with_its_commit(own, monkeypatch):
    snapshot = own.rename(own.with_name("c" * 40))
    asked = {}

    def download(name, **options):
        asked.update(name=name, **options)
        return str(snapshot)

    monkeypatch.setattr("huggingface_hub.snapshot_download", download)
    found = resolve_model(EncoderConfig(name="someone/some-model", revision="main"), Path("."))
    assert found.revision == "c" * 40
    assert found.path == snapshot
    assert (asked["name"], asked["revision"]) == ("someone/some-model", "main")
    assert not any(pattern.endswith((".bin", ".py", ".pt")) for pattern in asked["allow_patterns"])


def test_an_alias_with_other_bytes_is_refused(own, tmp_path, monkeypatch):
    package = tmp_path / "packages" / "fake_encoder_package"
    package.mkdir(parents=True)
    (package / "__init__.py").write_text("raise RuntimeError('imported')")
    shutil.copytree(own, package / "model")
    monkeypatch.syspath_prepend(package.parent)
    other = dataclasses.replace(module.ALIASES["minilm"], package="fake_encoder_package")
    monkeypatch.setitem(module.ALIASES, "minilm", other)
    with raises_code(ModelError, "wrong-checksum", "53aa5117"):
        resolve("minilm")


@pytest.mark.parametrize("shared", [True, False])
def test_a_fetched_alias_is_found_in_the_project_or_in_the_shared_folder(shared, own, tmp_path, monkeypatch):
    models = tmp_path / ("shared" if shared else "project/.models")
    if shared:
        monkeypatch.setenv("REGFT_MODELS", str(models))
    else:
        monkeypatch.delenv("REGFT_MODELS", raising=False)
    shutil.copytree(own, models / "mpnet")
    with raises_code(ModelError, "wrong-checksum", "model.safetensors", "78c0197b", "regft fetch --encoder mpnet"):
        resolve("mpnet", tmp_path / "project")
    hashes = {
        name: module.content_sha256(own / name) for name in ("model.safetensors", "config.json", "tokenizer.json")
    }
    monkeypatch.setitem(module.ALIASES, "mpnet", dataclasses.replace(module.ALIASES["mpnet"], sha256=hashes))
    found = resolve("mpnet", tmp_path / "project")
    assert (found.name, found.revision, found.path) == ("mpnet", None, (models / "mpnet").resolve())
    (models / "mpnet" / "config.json").unlink()
    with raises_code(ModelError, "file-missing", "config.json", "regft fetch --encoder mpnet"):
        resolve("mpnet", tmp_path / "project")
