"""Tokens kept beside the runs: read only as they were written, and written only by the code that is in their name."""

from __future__ import annotations

import logging
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from regft_core.data import encode as module
from regft_core.data.encode import encode
from regft_core.data.examples import Example
from regft_core.data.reading import Reading
from regft_core.errors import CodeChanged
from regft_core.runs import code
from regft_core.runs.caches import TokenFiles
from regft_core.runs.run import run
from tests.data.test_encode import PAIRS, SINGLES
from tests.runs.conftest import job
from tests.tiny import tiny_tokenizer

BERT: Any = tiny_tokenizer("bert")


def kept(folder: Path, *arguments: Any, about: str = "tokenizer and code", **options: Any) -> Any:
    """``encode`` as one run does it, whose code was checked."""
    files = TokenFiles(folder, about)
    found = encode(*arguments, files, **options)
    files.write()
    return found


def count_calls(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    calls: list[int] = []
    original = module._tokenise

    def counted(*arguments: Any) -> Any:
        calls.append(1)
        return original(*arguments)

    monkeypatch.setattr(module, "_tokenise", counted)
    return calls


def test_the_second_time_nothing_is_tokenised(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    calls = count_calls(monkeypatch)
    first = kept(tmp_path, PAIRS, BERT, 16)
    relabelled = [Example("x" + e.idx, e.text, e.text_pair, 0) for e in PAIRS]
    second = kept(tmp_path, relabelled, BERT, 16)
    assert len(calls) == 1
    assert (second.input_ids, second.token_type_ids) == (first.input_ids, first.token_type_ids)
    assert (second.segment, second.special_mask) == (first.segment, first.special_mask)
    assert (second.labels, second.ids) == ([0, 0, 0], ["xa", "xb", "xc"])  # which are no part of the cache
    assert all(isinstance(token, int) for token in second.input_ids[0])


def test_whatever_changes_the_tokens_misses_the_cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    calls = count_calls(monkeypatch)
    kept(tmp_path, PAIRS, BERT, 16)
    kept(tmp_path, PAIRS, BERT, 17)
    kept(tmp_path, PAIRS, BERT, 16, about="another tokenizer")
    for rows in (PAIRS[::-1], PAIRS[:2], SINGLES):
        kept(tmp_path, rows, BERT, 16)
    for reading in (Reading("a ", 1, 0), Reading("", 2, 1), Reading("", 2, 2)):
        assert kept(tmp_path, SINGLES, BERT, 8, reading=reading) == kept(tmp_path, SINGLES, BERT, 8, reading=reading)
    assert len(calls) == 9


@pytest.mark.parametrize("written", [True, False])
def test_separate_texts_come_from_the_cache_of_single_texts(tmp_path: Path, written: bool) -> None:
    fresh = encode(PAIRS, BERT, 16, rows_per_example=2)
    files = TokenFiles(tmp_path, "a")
    singles = encode(SINGLES, BERT, 16, files)
    for _ in range(2):
        if written:
            files.write()
        assert encode(PAIRS, BERT, 16, files, rows_per_example=2) == fresh
    seconds = [Example(e.idx, str(e.text_pair), None, e.label) for e in PAIRS]
    files.write()
    assert encode(seconds, BERT, 16, files) == encode(seconds, BERT, 16)
    assert encode(SINGLES, BERT, 16, files) == singles
    assert len(list(tmp_path.rglob("*.safetensors"))) == 2


text = st.text(max_size=6)
example_lists = st.lists(st.builds(Example, st.just("0"), text, st.none() | text, st.just(0)), max_size=4)


@given(example_lists, example_lists)
def test_different_texts_never_share_a_key(one: list[Example], other: list[Example]) -> None:
    same = [(e.text, e.text_pair) for e in one] == [(e.text, e.text_pair) for e in other]
    keys = [module._key(rows, 16, True, None, None) for rows in (one, other)]
    assert (keys[0] == keys[1]) == same


@given(st.data())
@settings(max_examples=40, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
def test_a_damaged_file_is_reported_made_again_and_replaced(
    tmp_path_factory: pytest.TempPathFactory, caplog: pytest.LogCaptureFixture, data: Any
) -> None:
    folder = tmp_path_factory.mktemp("tokens")
    wanted = kept(folder, PAIRS, BERT, 16)
    (path,) = folder.rglob("*.safetensors")
    content = bytearray(path.read_bytes())
    place = data.draw(st.integers(0, len(content) - 1))
    if cut := data.draw(st.booleans()):
        del content[place:]
    else:
        content[place] ^= 1 << data.draw(st.integers(0, 7))
    path.write_bytes(bytes(content))
    caplog.clear()
    with caplog.at_level(logging.WARNING):
        assert kept(folder, PAIRS, BERT, 16) == wanted
    assert ("is made again" in caplog.text) or not cut  # a flipped bit may fall where it changes nothing
    caplog.clear()
    assert kept(folder, PAIRS, BERT, 16) == wanted
    assert not caplog.records or not cut


def edited_while_it_trains(monkeypatch: pytest.MonkeyPatch, change: Any) -> None:
    original = module._tokenise

    def tokenise(*arguments: Any) -> Any:
        found = original(*arguments)
        change()
        return found

    monkeypatch.setattr(module, "_tokenise", tokenise)


def test_tokens_of_a_refused_run_are_not_kept(project: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """An upgrade of ``tokenizers`` while a run trains: what the old one made is under no name."""
    original = code._version

    def upgraded(name: str, state: Any) -> str | None:
        return "99.0" if name == "tokenizers" else original(name, state)

    with monkeypatch.context() as patch:
        edited_while_it_trains(patch, lambda: patch.setattr(code, "_version", upgraded))
        with pytest.raises(CodeChanged, match="tokenizers"):
            run(job(project, "vanilla"))
        assert list((project / ".regft").rglob("tokens/*/*")) == []
        with pytest.raises(CodeChanged, match="tokenizers"):  # this process has loaded the old one
            run(job(project, "vanilla"))
        assert list((project / ".regft").rglob("tokens/*/*")) == []
    run(job(project, "vanilla"))
    assert list((project / ".regft").rglob("tokens/*/*")) != []
