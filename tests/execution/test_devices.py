"""A GPU before and after a run. Torch's calls are stand-ins, since there is no GPU here."""

from __future__ import annotations

import weakref

import pytest
import torch

from regft_core.models import devices
from regft_core.models.devices import free_memory, take_device
from tests.methods.harness import Bench


@pytest.fixture
def calls(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    found: list[str] = []
    monkeypatch.setattr(torch.cuda, "set_device", lambda device: found.append(f"set {device}"))
    monkeypatch.setattr(torch.cuda, "empty_cache", lambda: found.append("empty"))
    monkeypatch.setattr(torch.cuda, "memory_allocated", lambda device: 0)
    monkeypatch.setattr(devices, "_staying", {})
    return found


def test_the_model_of_a_finished_run_is_gone_before_the_next_one_begins(
    calls: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    held = iter([700, 64])
    monkeypatch.setattr(torch.cuda, "memory_allocated", lambda device: next(held))
    bench = Bench()
    bench.train()
    kept = [weakref.ref(parameter) for parameter in bench.model.parameters()]
    del bench
    assert any(reference() is not None for reference in kept)  # it and its hooks refer to each other
    free_memory("cuda:0")
    assert not any(reference() is not None for reference in kept)
    assert calls == ["empty"]


def test_nobody_looks_for_what_is_left_where_nothing_is(calls: list[str], monkeypatch: pytest.MonkeyPatch) -> None:
    """Looking takes tenths of a second, of every run."""
    held = iter([700, 64, 64, 65, 64])
    monkeypatch.setattr(torch.cuda, "memory_allocated", lambda device: next(held))
    looked: list[None] = []
    monkeypatch.setattr(devices.gc, "collect", lambda: looked.append(None))
    for expected in (1, 1, 2):  # a run has ended; the next one begins; it has ended
        free_memory("cuda:0")
        assert len(looked) == expected
    assert calls == ["empty"] * 3


def test_a_process_works_on_the_gpu_of_its_run_and_elsewhere_nothing_happens(calls: list[str]) -> None:
    for device in ("cpu", "mps"):
        take_device(device)
        free_memory(device)
    assert calls == []
    take_device("cuda:1")
    assert calls == ["set cuda:1", "empty"]
