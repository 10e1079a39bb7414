"""The chunked loss equals the plain computation, with its gradients."""

from __future__ import annotations

from collections.abc import Callable, Iterator

import pytest
import torch
import torch.nn.functional as F

from onegate.lab.train import cross_entropy
from onegate.lab.train.cross_entropy import summed_cross_entropy

Inputs = tuple[torch.Tensor, torch.Tensor, torch.Tensor]
SIZES = [(1, 1, 2), (7, 5, 11), (13, 3, 1), (33, 8, 101)]


def problem(
    rows: int, width: int, words: int, dtype: torch.dtype = torch.float64
) -> tuple[Inputs, torch.Tensor]:
    torch.manual_seed(rows)

    def leaf(*shape: int) -> torch.Tensor:
        return torch.randn(*shape).to(dtype).requires_grad_()

    inputs = leaf(rows, width), leaf(words, width), leaf(words)
    return inputs, torch.randint(words, (rows,))


@pytest.mark.parametrize(("rows", "width", "words"), SIZES)
@pytest.mark.parametrize("at_once", [1, 50, 10**9])
def test_value_and_gradients_equal_torch_s(
    rows: int, width: int, words: int, at_once: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(cross_entropy, "_AT_ONCE", at_once)
    inputs, targets = problem(rows, width, words)
    plain = F.cross_entropy(F.linear(*inputs), targets, reduction="sum")
    expected = torch.autograd.grad(plain * 0.3, inputs)
    ours = summed_cross_entropy(*inputs, targets)
    found = torch.autograd.grad(ours * 0.3, inputs)
    torch.testing.assert_close(ours, plain, rtol=1e-12, atol=1e-12)
    for one, other in zip(found, expected, strict=True):
        torch.testing.assert_close(one, other, rtol=1e-11, atol=1e-11)


def test_gradcheck() -> None:
    inputs, targets = problem(5, 3, 7)
    assert torch.autograd.gradcheck(lambda h, W, b: summed_cross_entropy(h, W, b, targets), inputs)


def test_single_precision_is_close_to_double() -> None:
    inputs, targets = problem(70, 20, 1000, torch.float32)
    ours = summed_cross_entropy(*inputs, targets)
    wide = [i.detach().double() for i in inputs]
    exact = F.cross_entropy(F.linear(*wide), targets, reduction="sum")
    torch.testing.assert_close(ours.double(), exact, rtol=1e-6, atol=0.0)


def test_improbable_words_have_a_large_but_finite_loss() -> None:
    states = torch.ones(1, 1, requires_grad=True)
    weight = torch.tensor([[500.0], [-500.0]], requires_grad=True)
    bias = torch.zeros(2, requires_grad=True)
    loss = summed_cross_entropy(states, weight, bias, torch.tensor([1]))
    assert loss.item() == 1000
    (gradient,) = torch.autograd.grad(loss, states)
    assert gradient.item() == 1000


def products(profile: torch.profiler.profile) -> int:
    """How many matrix products were computed."""
    names = ("aten::mm", "aten::addmm", "aten::addmm_")
    return sum(event.count for event in profile.key_averages() if event.key in names)


@pytest.fixture
def short_products() -> Iterator[None]:
    before = torch.get_float32_matmul_precision()
    torch.set_float32_matmul_precision("medium")
    yield
    torch.set_float32_matmul_precision(before)


@pytest.mark.usefixtures("short_products")
@pytest.mark.parametrize("at_once", [5_000, 10**9])
def test_short_products_are_close_in_learning(
    at_once: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """bfloat16 has 8 binary digits: each number is off by at most 1 / 512 of itself."""
    monkeypatch.setattr(cross_entropy, "_AT_ONCE", at_once)
    inputs, targets = problem(70, 20, 1000, torch.float32)
    ours = summed_cross_entropy(*inputs, targets)
    wide = [i.detach().double().requires_grad_() for i in inputs]
    exact = F.cross_entropy(F.linear(*wide), targets, reduction="sum")
    assert ours.double() != exact
    torch.testing.assert_close(ours.double(), exact, rtol=1e-3, atol=0.0)
    found, expected = torch.autograd.grad(ours, inputs), torch.autograd.grad(exact, wide)
    for one, other in zip(found, expected, strict=True):
        assert one.dtype == torch.float32
        assert float((one - other).norm() / other.norm()) < 1 / 100


@pytest.mark.usefixtures("short_products")
def test_without_gradients_or_in_double_precision_no_product_is_short() -> None:
    for dtype, limit in ((torch.float32, 1e-6), (torch.float64, 1e-12)):
        inputs, targets = problem(70, 20, 1000, dtype)
        with torch.set_grad_enabled(dtype == torch.float64):
            ours = summed_cross_entropy(*inputs, targets)
        wide = [i.detach().double() for i in inputs]
        exact = F.cross_entropy(F.linear(*wide), targets, reduction="sum")
        torch.testing.assert_close(ours.double(), exact, rtol=limit, atol=0.0)


@pytest.mark.parametrize("frozen", [False, True])
def test_without_gradients_only_the_loss_is_computed(frozen: bool) -> None:
    inputs, targets = problem(4, 3, 5)
    if frozen:
        for one in inputs:
            one.requires_grad_(False)
    with torch.set_grad_enabled(frozen), torch.profiler.profile() as profile:
        loss = summed_cross_entropy(*inputs, targets)
    assert products(profile) == 1
    assert not loss.requires_grad
    torch.testing.assert_close(loss, F.cross_entropy(F.linear(*inputs), targets, reduction="sum"))


def tables_held(loss: Callable[[], torch.Tensor], table: int) -> int:
    """How many arrays of at least `table` bytes a loss and its backward pass hold at once."""
    with torch.profiler.profile(profile_memory=True) as profile:
        loss().backward()
    memory = [e for e in profile.profiler.kineto_results.events() if e.name() == "[memory]"]
    held = most = 0
    for event in sorted(memory, key=lambda e: e.start_ns()):
        if abs(event.nbytes()) >= table:
            held += event.nbytes()
            most = max(most, held)
    return most // table


def test_the_probabilities_are_held_once() -> None:
    inputs, targets = problem(50, 4, 3000, torch.float32)
    table = 50 * 3000 * 4
    plain = lambda: F.cross_entropy(F.linear(*inputs), targets, reduction="sum")  # noqa: E731
    assert tables_held(lambda: summed_cross_entropy(*inputs, targets), table) == 1
    assert tables_held(plain, table) > 1
