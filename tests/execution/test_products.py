"""Products in fp32 through oneDNN: torch's results up to rounding, in every shape that torch takes."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor
from torch.nn import functional

from regft_core.models import devices

pytestmark = pytest.mark.skipif(
    not (torch.backends.mkldnn.is_available() and hasattr(torch.ops.mkldnn, "_linear_pointwise")),
    reason="this torch was built without oneDNN",
)
SIZES = st.integers(0, 40)


@pytest.fixture(autouse=True)
def everywhere(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """oneDNN on any processor, and for products of any size."""
    monkeypatch.setattr(devices, "_slow_with_mkl", lambda: True)
    monkeypatch.setattr(devices, "_FEWEST", 1)
    monkeypatch.setenv(devices.SWITCH, "1")
    devices.take_fast_products()
    yield
    devices._registered.cache_clear()  # the kernels go with the object


@pytest.fixture
def counted(monkeypatch: pytest.MonkeyPatch) -> list[bool]:
    """Whether each product was given to oneDNN."""
    asked, product = [], devices._product

    def counting(*matrices: Tensor | None) -> Tensor | None:
        result = product(*matrices)
        asked.append(result is not None)
        return result

    monkeypatch.setattr(devices, "_product", counting)
    return asked


def drawn(*shape: int, seed: int = 0) -> Tensor:
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed))


@settings(deadline=None, max_examples=60)
@given(rows=SIZES, inner=SIZES, columns=SIZES, flipped=st.tuples(st.booleans(), st.booleans()))
def test_products_are_those_of_doubles(rows: int, inner: int, columns: int, flipped: tuple[bool, bool]) -> None:
    one = drawn(inner, rows).t() if flipped[0] else drawn(rows, inner)
    other = drawn(columns, inner, seed=1).t() if flipped[1] else drawn(inner, columns, seed=1)
    found = torch.mm(one, other)
    assert found.is_contiguous()
    torch.testing.assert_close(found, (one.double() @ other.double()).float(), atol=1e-5, rtol=1e-5)
    added = drawn(columns, seed=2)
    torch.testing.assert_close(
        torch.addmm(added, one, other), (added.double() + one.double() @ other.double()).float(), atol=1e-5, rtol=1e-5
    )


def test_a_linear_layer_and_its_gradients(counted: list[bool]) -> None:
    given_ = drawn(3, 5, 16).requires_grad_()
    weight, bias = drawn(8, 16, seed=1).requires_grad_(), drawn(8, seed=2).requires_grad_()
    functional.linear(given_, weight, bias).square().sum().backward()
    assert counted == [True] * 3  # forward, and backward to the input and to the weight
    doubles = [tensor.detach().double().requires_grad_() for tensor in (given_, weight, bias)]
    functional.linear(*doubles).square().sum().backward()
    for tensor, exact in zip((given_, weight, bias), doubles, strict=True):
        assert tensor.grad.stride() == tensor.stride()
        torch.testing.assert_close(tensor.grad, exact.grad.float(), atol=1e-4, rtol=1e-5)


@pytest.mark.parametrize("dtype", [torch.float64, torch.bfloat16, torch.int64])
def test_other_types_are_multiplied_as_before(dtype: torch.dtype, counted: list[bool]) -> None:
    one, other = (10 * drawn(4, 6)).to(dtype), (10 * drawn(6, 5, seed=1)).to(dtype)
    assert (one @ other).dtype is dtype
    torch.testing.assert_close((one @ other).double(), one.double() @ other.double(), atol=0, rtol=1e-2)
    assert not any(counted)


def test_equal_products_have_equal_bits() -> None:
    one, other = drawn(70, 90), drawn(90, 50, seed=1)
    first = one @ other
    assert all(torch.equal(first, one.clone() @ other.clone()) for _ in range(5))


def test_small_ones_and_a_switched_off_library_stay_with_torch(
    monkeypatch: pytest.MonkeyPatch, counted: list[bool]
) -> None:
    one, other = drawn(8, 8), drawn(8, 8, seed=1)
    monkeypatch.setattr(devices, "_FEWEST", 1000)
    one @ other
    monkeypatch.setattr(devices, "_FEWEST", 1)
    with torch.backends.mkldnn.flags(enabled=False):
        assert not devices.fast_products()
        one @ other
    one @ other
    assert counted == [False, False, True]


@pytest.mark.parametrize(
    ("maker", "family", "slow"),
    [("AuthenticAMD", "26", True), ("AuthenticAMD", "25", False), ("GenuineIntel", "26", False)],
)
def test_it_is_for_one_family_of_processors_and_processes_of_regft(
    monkeypatch: pytest.MonkeyPatch, maker: str, family: str, slow: bool
) -> None:
    monkeypatch.undo()
    monkeypatch.setattr(devices.Path, "is_file", lambda _: True)
    facts = f"vendor_id\t: {maker}\ncpu family\t: {family}\n"
    monkeypatch.setattr(devices.Path, "read_text", lambda *_, **__: facts)
    monkeypatch.setattr(torch.backends.mkl, "is_available", lambda: True)
    slow_here = devices._slow_with_mkl.__wrapped__()
    assert slow_here is slow
    monkeypatch.setattr(devices, "_slow_with_mkl", lambda: True)
    monkeypatch.delenv(devices.SWITCH, raising=False)
    assert not devices.fast_products()
