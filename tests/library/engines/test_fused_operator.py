"""The operators refuse tensors that a program is not made for."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor, nn

import onegate
from onegate.engines.cpu import programs
from onegate.engines.cpu.native import NativeError
from onegate.tracing import trace
from onegate.units import UNITS

T, B, D, N = 4, 3, 5, 9
GRAPH = trace(UNITS["mgu"], D, N)
FORWARD, BACKWARD = torch.ops.onegate.forward.default, torch.ops.onegate.backward.default


def arguments() -> dict[str, Any]:
    """Of the forward operator."""
    return {
        "x": torch.randn(T, B, D),
        "start": torch.zeros(1, B, N),
        "parameters": [torch.randn(shape) for shape in GRAPH.parameters.values()],
        "lengths": torch.tensor([4, 1, 2]),
        "key": programs.key_of(GRAPH),
        "keep": True,
    }


WRONG: dict[str, tuple[str, Callable[[Any], Any], str]] = {
    "x too narrow": ("x", lambda x: x[..., 1:], r"mgu: x is \(4, 3, 4\), .* expected \(4, 3, 5\)"),
    "x of more rows": ("x", lambda x: x.repeat(1, 2, 1), r"start is .* expected \(1, 6, 9\)"),
    "x in float64": ("x", lambda x: x.double(), r"start is .* expected .* torch.float64"),
    "start too narrow": ("start", lambda s: s[..., 1:], r"start is \(1, 3, 8\), .* \(1, 3, 9\)"),
    "start in float64": ("start", lambda s: s.double(), "start is .* torch.float64"),
    "too few lengths": ("lengths", lambda n: n[1:], r"lengths is \(2,\), .* expected \(3,\)"),
    "lengths in int32": ("lengths", lambda n: n.int(), "lengths is .* torch.int32"),
    "a length of 0": ("lengths", lambda n: n - 1, "length 0 of row 1 is not between 1 and the 4"),
    "too few parameters": ("parameters", lambda p: p[1:], "5 parameters came, expected 6"),
    "parameters of two directions": ("parameters", lambda p: 2 * p, "12 parameters came"),
    "a smaller parameter": (
        "parameters",
        lambda p: [p[0][1:], *p[1:]],
        r"a parameter is \(8, 9\), .* expected \(9, 9\)",
    ),
    "a parameter in float64": (
        "parameters",
        lambda p: [*p[:-1], p[-1].double()],
        r"a parameter is \(9,\), torch.float64 on cpu; expected \(9,\), torch.float32",
    ),
}


@pytest.mark.parametrize("case", WRONG)
def test_what_a_program_is_not_made_for_is_refused(case: str) -> None:
    name, change, message = WRONG[case]
    given = arguments()
    out, _, kept = FORWARD(*given.values())
    given[name] = change(given[name])
    with pytest.raises((ValueError, NativeError), match=message):
        FORWARD(*given.values())
    del given["keep"]
    with pytest.raises((ValueError, NativeError), match=message):
        BACKWARD(*given.values(), out, kept, out, None, True)


@pytest.mark.parametrize("dtype", [torch.float16, torch.complex64, torch.int32, torch.int64])
def test_other_dtypes_are_refused(dtype: torch.dtype) -> None:
    """Those as wide as float32 or float64 too."""
    given = arguments()
    given |= {"x": given["x"].to(dtype), "start": given["start"].to(dtype)}
    given["parameters"] = [p.to(dtype) for p in given["parameters"]]
    with pytest.raises(ValueError, match=f"x is .* {dtype} on cpu; expected .* torch.float32"):
        FORWARD(*given.values())


@pytest.mark.parametrize("name", ["x", "start", "parameters", "lengths"])
def test_a_meta_tensor_among_others_is_refused(name: str) -> None:
    """torch would take the rule for shapes, and return memory that nobody wrote."""
    given = arguments()
    value = given[name]
    given[name] = [v.to("meta") for v in value] if name == "parameters" else value.to("meta")
    with pytest.raises(ValueError, match=r"mgu: a tensor of .* is on .*, expected .*, where x is"):
        FORWARD(*given.values())


@pytest.mark.parametrize("name", ["out", "kept", "grad_out", "grad_last"])
def test_the_backward_pass_refuses_what_is_too_small(name: str) -> None:
    given = arguments()
    out, last, kept = FORWARD(*given.values())
    del given["keep"]
    rest = {"out": out, "kept": kept, "grad_out": out, "grad_last": last}
    BACKWARD(*given.values(), *rest.values(), True)
    rest[name] = rest[name].flatten()[:-1]
    with pytest.raises(ValueError, match=f"mgu: {name} is "):
        BACKWARD(*given.values(), *rest.values(), True)


def test_a_forward_pass_that_kept_nothing_has_no_backward_pass() -> None:
    given = arguments()
    out, _, kept = FORWARD(*(given | {"keep": False}).values())
    del given["keep"]
    with pytest.raises(NativeError, match="the forward pass kept nothing"):
        BACKWARD(*given.values(), out, kept, out, None, True)


@pytest.mark.parametrize(
    "parameter", [torch.randn(N, D, dtype=torch.float64), torch.randn(N, D - 1)]
)
def test_a_layer_whose_parameter_was_exchanged(parameter: Tensor) -> None:
    layer = onegate.MGU(D, N)
    layer.get_submodule("l0.h").W = nn.Parameter(parameter)
    for grad in (True, False):
        with torch.set_grad_enabled(grad), pytest.raises(ValueError, match="a parameter is"):
            layer(torch.randn(T, B, D))
