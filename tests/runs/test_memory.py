"""What a process keeps over the runs of a grid: vectors of a frozen encoder, and tokens."""

from __future__ import annotations

import shutil
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from regft_core.data import encode as module
from regft_core.data.encode import encode, token_memory, vector_memory
from regft_core.data.examples import Example
from regft_core.data.prompts import Reading
from regft_core.errors import InputChanged
from regft_core.models import features, load
from regft_core.runs import finished_model
from regft_core.runs.context import Context, Job
from regft_core.runs.evaluate import evaluation_identity
from regft_core.runs.run import run
from tests.data.test_batches import PAIRS, SINGLES
from tests.promises.kit import folded as make_folded
from tests.runs.conftest import change, job, refresh, stored, write_method
from tests.tiny import tiny_tokenizer

NO_STEPS: dict[str, Any] = {"epochs": 0}
#: Under another name of its phase than the probe, so that it fits by itself.
OTHER: dict[str, Any] = {
    "model": {"pooling": "mean"},
    "phases": {"finetune": {"regularisers": {"linear_head": {"head": "package"}}, "training": NO_STEPS}},
}


@pytest.fixture
def probes(project: Path) -> Path:
    write_method(project, "other", **OTHER)
    change(project, methods=["vanilla", "linear_probe", "other"], grid={"sizes": [24, 40]})
    refresh(project)
    return project


@contextmanager
def rows_encoded(monkeypatch: pytest.MonkeyPatch) -> Iterator[list[int]]:
    """Rows of every pass through an encoder."""
    found: list[int] = []
    original: Callable[..., Any] = load._from_pretrained

    def counting(*arguments: Any, **options: Any) -> Any:
        model, info = original(*arguments, **options)
        encoder = getattr(model, "base_model", model)
        encoder.register_forward_pre_hook(lambda _m, _a, kw: found.append(len(kw["input_ids"])), with_kwargs=True)
        return model, info

    with monkeypatch.context() as patch:
        patch.setattr(load, "_from_pretrained", counting)
        yield found


def scores(root: Path, method: str, seed: int = 0, size: str = "24") -> tuple[Any, Any]:
    """All numbers of a run: predictions of every set, and the weights' hash."""
    done = run(replace(job(root, method, seed), size=size))
    assert done["evaluate"]["status"] == "ok"
    return done["evaluate"]["predictions"], stored(root, done["finetune"]["key"]).tensors_sha256()


@pytest.fixture(autouse=True)
def empty_memory() -> None:
    vector_memory().clear()


def test_every_set_is_encoded_once_and_all_numbers_are_those_of_runs_without_kept_vectors(
    probes: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    grid = [("linear_probe", 0, "24"), ("linear_probe", 1, "24"), ("other", 0, "24"), ("other", 0, "40")]
    counts, found = [], []
    for method, seed, size in grid:
        with rows_encoded(monkeypatch) as rows:
            found.append(scores(probes, method, seed, size))
        counts.append(sum(rows))
    assert counts == [24 + 3 * 40, 24, 0, 40]
    alone = []
    for number, (method, seed, size) in enumerate(grid[1:3]):
        clean = Path(shutil.copytree(probes, tmp_path / f"alone-{number}"))
        shutil.rmtree(clean / ".regft")
        vector_memory().clear()
        alone.append(scores(clean, method, seed, size))
    assert found[1:3] == alone


def test_a_trained_encoder_is_not_kept(project: Path) -> None:
    vector_memory().clear()
    scores(project, "vanilla")
    assert not vector_memory()


def test_nothing_is_kept_of_an_encoder_that_was_replaced_meanwhile(
    probes: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    original: Callable[..., Any] = finished_model.FinishedModel.answer
    weights = probes / "models" / "tiny" / "model.safetensors"
    keys: list[str] = []
    put = features.Features.put
    monkeypatch.setattr(features.Features, "put", lambda *given: (keys.append(given[0].key(given[1])), put(*given)))

    def replacing(*arguments: Any) -> Any:
        found = original(*arguments)
        weights.write_bytes(weights.read_bytes()[:-1] + b"\x01")
        return found

    run(job(probes, "linear_probe"), until="finetune")
    assert [vector_memory().get(key) is None for key in keys] == [False]  # of the training rows
    monkeypatch.setattr(finished_model.FinishedModel, "answer", replacing)
    with pytest.raises(InputChanged, match="encoder"):
        run(job(probes, "linear_probe"))
    assert len(keys) > 1
    assert all(vector_memory().get(key) is None for key in keys)


@pytest.fixture
def folded(tmp_path: Path) -> Path:
    root = make_folded(tmp_path / "p", ["linear_probe"])
    refresh(root)
    return root


def fold(root: Path, seed: int, **options: Any) -> Job:
    return Job(str(root), "linear_probe", "reviews", "full", seed, **options)


def test_rows_of_folds_are_encoded_once_over_folds_repeats_and_the_final_model(
    folded: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    clean = Path(shutil.copytree(folded, tmp_path / "clean"))
    counts, found = [], []
    for options in ({"seed": 0}, {"seed": 1}, {"seed": 4}, {"seed": 0, "refit": True, "values": None}):
        with rows_encoded(monkeypatch) as rows:
            found.append(run(fold(folded, **options)))
        counts.append(sum(rows))
    texts = {row.split(",")[0] for row in (folded / "data" / "rows.csv").read_text().splitlines()[1:]}
    assert counts == [len(texts), 0, 0, 0]
    vector_memory().clear()
    other = run(fold(clean, 4))
    assert other["evaluate"]["predictions"] == found[2]["evaluate"]["predictions"]
    keys = [one["finetune"]["key"] for one in (other, found[2])]
    assert keys[0] == keys[1]
    assert stored(clean, keys[0]).tensors_sha256() == stored(folded, keys[0]).tensors_sha256()


def test_how_rows_are_read_is_in_the_key(folded: Path, probes: Path) -> None:
    folds, whole = Context(fold(folded, 0)), Context(job(probes, "linear_probe"))
    assert folds.phase("head").identity()["rows_alone"] is True
    assert whole.phase("head").identity()["rows_alone"] is False
    assert folds.phase("finetune").identity()["rows_alone"] is False  # its start has a key that says so
    assert evaluation_identity(folds)["rows_alone"] is True
    assert evaluation_identity(whole)["rows_alone"] is False


# ------------------------------------------------------------------------------------------------------------- tokens


BERT: Any = tiny_tokenizer("bert")


def count_calls(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    calls: list[int] = []
    original = module._tokenise

    def counted(*arguments: Any) -> Any:
        calls.append(1)
        return original(*arguments)

    monkeypatch.setattr(module, "_tokenise", counted)
    return calls


def test_the_second_time_nothing_is_tokenised(monkeypatch: pytest.MonkeyPatch) -> None:
    calls, memory = count_calls(monkeypatch), token_memory("first")
    first = encode(PAIRS, BERT, 16, memory)
    relabelled = [Example("x" + e.idx, e.text, e.text_pair, 0) for e in PAIRS]
    second = encode(relabelled, BERT, 16, memory)
    assert len(calls) == 1
    assert (second.input_ids, second.token_type_ids) == (first.input_ids, first.token_type_ids)
    assert second.segment == first.segment
    assert (second.labels, second.ids) == ([0, 0, 0], ["xa", "xb", "xc"])  # which are no part of the cache


def test_whatever_changes_the_tokens_is_another_key(monkeypatch: pytest.MonkeyPatch) -> None:
    calls, memory = count_calls(monkeypatch), token_memory("other")
    encode(PAIRS, BERT, 16, memory)
    encode(PAIRS, BERT, 17, memory)
    for rows in (PAIRS[::-1], PAIRS[:2], SINGLES):
        encode(rows, BERT, 16, memory)
    for reading in (Reading("a ", 1, 0), Reading("", 2, 1), Reading("", 2, 2)):
        for _ in range(2):
            assert encode(SINGLES, BERT, 8, memory, reading=reading) == encode(SINGLES, BERT, 8, reading=reading)
    assert len(calls) == 5 + 3 + 6
    assert token_memory("a") is token_memory("a") is not token_memory("b")
