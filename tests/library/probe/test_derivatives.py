"""Derivatives against autograd, runs from the middle and finite differences; known exponents."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor

import onegate
from onegate.probe import Pass, lyapunov_exponents, record, step_jacobians, through_time
from tests.library.comparing import X_ALONE
from tests.library.probe.constructed import Linear, constant_gate

T, B, D, N = 8, 3, 2, 4


def weighted(out: Tensor, weights: Tensor) -> Tensor:
    return (out * weights).sum()


@pytest.mark.parametrize("unit", X_ALONE)
def test_it_is_the_gradient_of_a_run_that_starts_there(unit: str) -> None:
    """L read from the outputs after t, as a function of the states at t."""
    layer = onegate.Recurrent(unit, D, N, dtype=torch.float64, init=("normal", 0.7))
    x = torch.randn(T, B, D, dtype=torch.float64)
    weights = torch.randn(N, dtype=torch.float64)
    found = through_time(layer, lambda: weighted(layer(x)[0][-1], weights))["l0"]["h"]
    assert found.shape == (T, B)
    one = record(layer, x)["l0"]
    for t in (0, 3, T - 2):
        states = [one[state][t].detach() for state in layer.unit.states]
        h = states[0].requires_grad_()
        later, _ = layer(
            x[t + 1 :], h[None] if len(states) == 1 else tuple(s[None] for s in states)
        )
        (gradient,) = torch.autograd.grad(weighted(later[-1], weights), h)
        torch.testing.assert_close(found[t], gradient.norm(dim=-1))


def test_both_states_of_lstm_and_both_directions() -> None:
    layer = onegate.LSTM(D, N, bidirectional=True, dtype=torch.float64)
    x = torch.randn(T, B, D, dtype=torch.float64)
    found = through_time(layer, lambda: layer(x)[1][0].square().sum())
    assert {name: list(states) for name, states in found.items()} == {
        "l0": ["h", "c"],
        "l0_reverse": ["h", "c"],
    }
    h = found["l0"]["h"][-1]
    torch.testing.assert_close(h, 2 * layer(x)[0][-1, :, :N].detach().norm(dim=-1))
    # The backward direction's last step is the first one.
    reverse = found["l0_reverse"]["h"]
    torch.testing.assert_close(reverse[0], 2 * layer(x)[0][0, :, N:].detach().norm(dim=-1))
    # c reaches the loss through h as well: o (1 - tanh(c)^2) of it.
    last = record(layer, x)["l0"]
    through_h = 2 * last["h"][-1] * last["o"][-1] * (1 - last["c"][-1].tanh() ** 2)
    torch.testing.assert_close(found["l0"]["c"][-1], through_h.detach().norm(dim=-1))


def test_steps_beyond_a_length_have_no_gradient() -> None:
    layer = onegate.MGU(D, N, dtype=torch.float64)
    x = torch.randn(T, B, D, dtype=torch.float64)
    found = through_time(layer, lambda: layer(x, lengths=[T, 3, 5])[1].square().sum())["l0"]["h"]
    assert (found > 0).sum(0).tolist() == [T, 3, 5]


def test_a_linear_chain_shrinks_as_it_must() -> None:
    """With the matrix a I, dL/dh[t] is a^(T-1-t) times the last one."""
    layer = onegate.Recurrent("irnn", 1, N, dtype=torch.float64)
    with torch.no_grad():
        for name, parameter in layer.named_parameters():
            parameter.copy_(0.8 * torch.eye(N) if name == "l0.h.U" else torch.ones_like(parameter))
    x = torch.ones(T, 1, 1, dtype=torch.float64)
    norms = through_time(layer, lambda: layer(x)[0][-1].sum())["l0"]["h"][:, 0]
    expected = 2 * 0.8 ** torch.arange(T - 1, -1, -1, dtype=torch.float64)
    torch.testing.assert_close(norms, expected)


def traced(unit: str, **options: object) -> Pass:
    layer = onegate.Recurrent(
        unit, D, N, dtype=torch.float64, init=("normal", 0.7), bidirectional=True
    )
    return record(layer, torch.randn(T, B, D, dtype=torch.float64), **options)["l0_reverse"]  # type: ignore[arg-type]


def stepped(one: Pass, states: Tensor, t: int, row: int) -> Tensor:
    """One step by the unit's own equations; t is in the order of time."""
    sizes = [state.size or 0 for state in one.graph.states]
    unit = one.graph.unit.bind(one.graph, one.parameters)
    new = unit.step(one.input[t, row], *states.split(sizes))
    return torch.cat(new if isinstance(new, tuple) else (new,))


@pytest.mark.parametrize("unit", X_ALONE)
def test_they_are_autograds_and_finite_differences(unit: str) -> None:
    one = traced(unit)
    found = step_jacobians(one)
    size = sum(state.size or 0 for state in one.graph.states)
    assert found.shape == (T, B, size, size)
    for t, row in ((0, 0), (3, 2), (T - 1, 1)):
        before = torch.cat([one.before(s)[t, row] for s in one.graph.unit.states]).detach()
        ours = found[T - 1 - t, row]  # the backward direction reads the last step first
        by_autograd = torch.autograd.functional.jacobian(
            lambda states, t=t, row=row: stepped(one, states, t, row), before
        )
        torch.testing.assert_close(ours, by_autograd, rtol=1e-10, atol=1e-12)
        moves = 1e-6 * torch.eye(size, dtype=torch.float64)
        differences = torch.stack(
            [(stepped(one, before + m, t, row) - stepped(one, before - m, t, row)) for m in moves],
            dim=1,
        )
        torch.testing.assert_close(ours, differences / 2e-6, rtol=1e-6, atol=1e-8)


def test_some_steps_alone() -> None:
    one = traced("gru")
    torch.testing.assert_close(step_jacobians(one, [4, 1]), step_jacobians(one)[[4, 1]])


def test_a_constant_gate_has_the_exponent_of_what_it_keeps() -> None:
    shares = torch.tensor([0.2, 0.5, 0.9], dtype=torch.float64)
    for one in constant_gate(shares, steps=300, bidirectional=True).values():
        expected = torch.full((3,), 0.8, dtype=torch.float64).log()
        torch.testing.assert_close(lyapunov_exponents(one), expected, rtol=1e-6, atol=0)
        singular = torch.linalg.svdvals(step_jacobians(one, [0, 7]))
        torch.testing.assert_close(singular, (1 - shares).sort(descending=True)[0].expand(2, 3, 3))


@pytest.mark.parametrize("radius", [0.7, 1.3])
def test_a_linear_unit_has_the_exponent_of_its_largest_eigenvalue(radius: float) -> None:
    layer = onegate.Recurrent(Linear(), D, N, dtype=torch.float64)
    matrix = torch.randn(N, N, dtype=torch.float64)
    matrix = matrix @ matrix.T  # its eigenvalues are real: no turning that averages out late
    matrix *= radius / torch.linalg.eigvalsh(matrix)[-1]
    with torch.no_grad():
        layer.get_parameter("l0.h.U").copy_(matrix)
    one = record(layer, torch.randn(300, B, D, dtype=torch.float64), lengths=[300, 250, 200])["l0"]
    expected = torch.full((B,), radius, dtype=torch.float64).log()
    torch.testing.assert_close(lyapunov_exponents(one), expected, rtol=1e-5, atol=0)


@pytest.mark.parametrize("unit", ["gru", "lstm"])
def test_the_exponent_is_the_growth_under_the_steps_jacobians(unit: str) -> None:
    """Backward in time and with rows of different lengths; a tenth of the steps does not count."""
    layer = onegate.Recurrent(
        unit, D, N, dtype=torch.float64, init=("normal", 1.5), bidirectional=True
    )
    lengths = [40, 23, 31]
    x = torch.randn(40, B, D, dtype=torch.float64)
    one = record(layer, x, lengths=lengths)["l0_reverse"]
    jacobians = step_jacobians(one)
    generator = torch.Generator().manual_seed(0)
    start = torch.randn(B, jacobians.shape[-1], generator=generator).double()
    expected = []
    for row, length in enumerate(lengths):
        difference, sizes = start[row] / start[row].norm(), [1.0]
        for t in range(length):
            difference = jacobians[t, row] @ difference
            sizes.append(float(difference.norm()))
        skipped = length // 10
        growth = torch.tensor(sizes[-1] / sizes[skipped], dtype=torch.float64).log()
        expected.append(growth / (length - skipped))
    torch.testing.assert_close(lyapunov_exponents(one), torch.stack(expected))


def test_a_difference_that_is_wiped_out_has_no_growth_at_all() -> None:
    layer = onegate.Recurrent("irnn", D, N, dtype=torch.float64)
    with torch.no_grad():
        layer.get_parameter("l0.h.b").fill_(-100.0)  # nothing gets through
    one = record(layer, torch.randn(T, B, D, dtype=torch.float64))["l0"]
    assert lyapunov_exponents(one).tolist() == [float("-inf")] * B
