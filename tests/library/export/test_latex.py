"""Equations as text: against the paper's Table 1, with the right brackets, and fit for mathtext."""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any

import pytest
from matplotlib.mathtext import MathTextParser

from onegate.export.latex import equations, expression, latex
from onegate.language import Affine, Unit, Vector, relu, sigmoid, tanh
from onegate.ops import maximum, minimum, sqrt, square
from onegate.tracing import trace
from onegate.units import UNITS
from tests.library.sample_unit import with_a_loop

# Table 1 of Zhou et al. (2016), without spaces, bold face and stretched brackets.
TABLE_1 = {
    "lstm": [
        r"f_t=\sigma(W_f[h_{t-1},x_t]+b_f)",
        r"i_t=\sigma(W_i[h_{t-1},x_t]+b_i)",
        r"o_t=\sigma(W_o[h_{t-1},x_t]+b_o)",
        r"\tilde{c}_t=\tanh(W_c[h_{t-1},x_t]+b_c)",
        r"c_t=f_t\odotc_{t-1}+i_t\odot\tilde{c}_t",
        r"h_t=o_t\odot\tanh(c_t)",
    ],
    "gru": [
        r"z_t=\sigma(W_z[h_{t-1},x_t]+b_z)",
        r"r_t=\sigma(W_r[h_{t-1},x_t]+b_r)",
        r"\tilde{h}_t=\tanh(W_h[r_t\odoth_{t-1},x_t]+b_h)",
        r"h_t=(1-z_t)\odoth_{t-1}+z_t\odot\tilde{h}_t",
    ],
    "mgu": [
        r"f_t=\sigma(W_f[h_{t-1},x_t]+b_f)",
        r"\tilde{h}_t=\tanh(W_h[f_t\odoth_{t-1},x_t]+b_h)",
        r"h_t=(1-f_t)\odoth_{t-1}+f_t\odot\tilde{h}_t",
    ],
}


def lines(name: str) -> list[str]:
    """The equations of a unit in LaTeX, without the environment around them."""
    first, *inner, last = latex(trace(UNITS[name], 2, 2)).split("\n")
    assert (first, last) == (r"\begin{align}", r"\end{align}")
    return inner


@pytest.mark.parametrize("name", TABLE_1)
def test_is_the_papers_table(name: str) -> None:
    assert [re.sub(r"\\\\|&|\s", "", line) for line in lines(name)] == TABLE_1[name]


def test_is_an_align_environment() -> None:
    assert latex(trace(UNITS["mgu"], 2, 2)) == "\n".join((
        r"\begin{align}",
        r"f_t &= \sigma(W_f [h_{t-1}, x_t] + b_f) \\",
        r"\tilde{h}_t &= \tanh(W_h [f_t \odot h_{t-1}, x_t] + b_h) \\",
        r"h_t &= (1 - f_t) \odot h_{t-1} + f_t \odot \tilde{h}_t",
        r"\end{align}",
    ))  # fmt: skip


EXACT = {
    "simple": [r"h_t &= \tanh(W_h [h_{t-1}, x_t] + b_h)"],
    "irnn": [r"h_t &= \mathrm{ReLU}(W_h [h_{t-1}, x_t] + b_h)"],
    "scrn": [
        r"s_t &= 0.95 s_{t-1} + 0.05 B x_t \\",
        r"h_t &= \sigma(P s_t + A x_t + R h_{t-1})",
    ],
    "mgu2": [
        r"f_t &= \sigma(U_f h_{t-1}) \\",
        r"\tilde{h}_t &= \tanh(W_h [f_t \odot h_{t-1}, x_t] + b_h) \\",
        r"h_t &= (1 - f_t) \odot h_{t-1} + f_t \odot \tilde{h}_t",
    ],
    "mgu3": [
        r"f_t &= \sigma(b_f) \\",
        r"\tilde{h}_t &= \tanh(W_h [f_t \odot h_{t-1}, x_t] + b_h) \\",
        r"h_t &= (1 - f_t) \odot h_{t-1} + f_t \odot \tilde{h}_t",
    ],
    "gru_reset_after": [
        r"z_t &= \sigma(W_z [h_{t-1}, x_t] + b_z) \\",
        r"r_t &= \sigma(W_r [h_{t-1}, x_t] + b_r) \\",
        r"\tilde{h}_t &= \tanh(W_h x_t + b_h + r_t \odot (U_h h_{t-1} + b_{U_h})) \\",
        r"h_t &= (1 - z_t) \odot \tilde{h}_t + z_t \odot h_{t-1}",
    ],
    "mut1": [
        r"z_t &= \sigma(W_z x_t + b_z) \\",
        r"r_t &= \sigma(W_r [h_{t-1}, x_t] + b_r) \\",
        r"\tilde{h}_t &= \tanh(U_h (r_t \odot h_{t-1}) + b_h + \tanh(x_t)) \\",
        r"h_t &= z_t \odot \tilde{h}_t + (1 - z_t) \odot h_{t-1}",
    ],
    "lstm_cifg": [
        r"i_t &= \sigma(W_i [h_{t-1}, x_t] + b_i + p_i \odot c_{t-1}) \\",
        r"f_t &= 1 - i_t \\",
        r"\tilde{c}_t &= \tanh(W_c [h_{t-1}, x_t] + b_c) \\",
        r"c_t &= f_t \odot c_{t-1} + i_t \odot \tilde{c}_t \\",
        r"o_t &= \sigma(W_o [h_{t-1}, x_t] + b_o + p_o \odot c_t) \\",
        r"h_t &= o_t \odot \tanh(c_t)",
    ],
    "janet": [
        r"s_t &= W_f [h_{t-1}, x_t] + b_f \\",
        r"f_t &= \sigma(s_t) \\",
        r"\tilde{h}_t &= \tanh(W_h [h_{t-1}, x_t] + b_h) \\",
        r"h_t &= f_t \odot h_{t-1} + (1 - \sigma(s_t - 1)) \odot \tilde{h}_t",
    ],
}


@pytest.mark.parametrize("name", EXACT)
def test_exact_lines(name: str) -> None:
    assert lines(name) == EXACT[name]


def test_the_candidate_of_full_gate_recurrence_is_the_cells() -> None:
    assert r"\tilde{c}_t &= \tanh(W_c [h_{t-1}, x_t] + b_c) \\" in lines("lstm_fgr")


@pytest.mark.parametrize("name", UNITS)
def test_renders_line_by_line(name: str) -> None:
    parser = MathTextParser("path")
    for size in (2, 3):
        for line in latex(trace(UNITS[name], size, 2)).split("\n")[1:-1]:
            math = line.removesuffix(r" \\").replace("&", "")
            width, height, *_ = parser.parse(f"${math}$")
            assert width > 0 < height


@pytest.mark.parametrize("name", UNITS)
def test_plain_text_has_the_same_equations(name: str) -> None:
    graph = trace(UNITS[name], 2, 2)
    plain = [line.split(" = ")[0] for line in equations(graph)]
    assert [_as_plain(s) for s in _left(name)] == plain
    assert not re.search(r"[\\{}&]", "".join(equations(graph)))


def _as_plain(left: str) -> str:
    r"""\tilde{h}_t and \gamma_{x,t} as plain text has them."""
    left = re.sub(r"\\tilde\{(\w)\}", "\\1\N{COMBINING TILDE}", left)
    left = re.sub(r"_\{(\w),t\}", r"_\1_t", left)
    left = re.sub(r"\\mathrm\{(\w+)\}", r"\1", left)
    return left.removeprefix("\\").replace("_t", "ₜ")


def _left(name: str) -> list[str]:
    return [line.split(" &= ")[0] for line in lines(name)]


def test_plain_text_of_mgu() -> None:
    assert equations(trace(UNITS["mgu"], 2, 2)) == [
        "fₜ = \N{GREEK SMALL LETTER SIGMA}(W_f [hₜ₋₁, xₜ] + b_f)",
        "h\N{COMBINING TILDE}ₜ = tanh(W_h [fₜ ⊙ hₜ₋₁, xₜ] + b_h)",
        "hₜ = (1 - fₜ) ⊙ hₜ₋₁ + fₜ ⊙ h\N{COMBINING TILDE}ₜ",
    ]


class Common(Unit, abstract=True):
    W, V, p, q_slow = Affine(), Affine(bias=False), Vector(), Vector()


def right_sides(step: Callable[..., Any], **body: Any) -> list[str]:
    kind: type[Unit] = type("Sample", (Common,), {"step": step} | body)
    return equations(trace(kind(), 2, 2))


BRACKETS: dict[str, tuple[Callable[..., Any], str]] = {
    "sum of sums": (lambda self, x, h: (h + x) + (x + h), "hₜ₋₁ + xₜ + xₜ + hₜ₋₁"),
    "difference of sums": (lambda self, x, h: (h - x) - (x + h), "hₜ₋₁ - xₜ - (xₜ + hₜ₋₁)"),
    "difference of differences": (lambda self, x, h: h - (x - h), "hₜ₋₁ - (xₜ - hₜ₋₁)"),
    "product of sums": (lambda self, x, h: (h + x) * (h - x), "(hₜ₋₁ + xₜ) ⊙ (hₜ₋₁ - xₜ)"),
    "product of products": (lambda self, x, h: (h * x) * (x * h), "hₜ₋₁ ⊙ xₜ ⊙ xₜ ⊙ hₜ₋₁"),
    "minus a product": (lambda self, x, h: -(h * x), "-hₜ₋₁ ⊙ xₜ"),
    "minus a sum": (lambda self, x, h: -(h + x), "-(hₜ₋₁ + xₜ)"),
    "minus a difference": (lambda self, x, h: -(h - x), "-(hₜ₋₁ - xₜ)"),
    "plus minus": (lambda self, x, h: x + -h, "xₜ + (-hₜ₋₁)"),
    "minus times": (lambda self, x, h: -x * h, "(-xₜ) ⊙ hₜ₋₁"),
    "number times sum": (lambda self, x, h: 2 * (x + h), "2 (xₜ + hₜ₋₁)"),
    "number behind": (lambda self, x, h: h * 2, "2 hₜ₋₁"),
    "number times product": (lambda self, x, h: 2 * (x * h), "2 (xₜ ⊙ hₜ₋₁)"),
    "two numbers": (lambda self, x, h: 2 * (3 * h), "2 (3 hₜ₋₁)"),
    "negative number": (lambda self, x, h: -0.5 * h + -1, "(-0.5) hₜ₋₁ + (-1)"),
    "number times map": (lambda self, x, h: 2 * self.V[h], "2 V hₜ₋₁"),
    "number times map with bias": (lambda self, x, h: 2 * self.W[x], "2 (W xₜ + b_W)"),
    "map of a sum": (lambda self, x, h: self.V[h + x], "V (hₜ₋₁ + xₜ)"),
    "map of a map": (lambda self, x, h: self.V[self.W[h]], "V (U hₜ₋₁ + b_W)"),
    "map of a function": (lambda self, x, h: self.V[tanh(h)], "V tanh(hₜ₋₁)"),
    "minus a map": (lambda self, x, h: x - self.W[h, x], "xₜ - (W [hₜ₋₁, xₜ] + b_W)"),
    "vector times map": (lambda self, x, h: self.p * self.V[h], "p ⊙ (V hₜ₋₁)"),
    "long names": (lambda self, x, h: self.q_slow * h, "q_slow ⊙ hₜ₋₁"),
    "old state": (lambda self, x, h: h, "hₜ₋₁"),
    "ratio": (lambda self, x, h: h / x * x, "hₜ₋₁ / xₜ ⊙ xₜ"),
    "ratio of sums": (lambda self, x, h: (h + x) / (h - x), "(hₜ₋₁ + xₜ) / (hₜ₋₁ - xₜ)"),
    "ratio of ratios": (lambda self, x, h: (1 / h) / (h / x), "1 / hₜ₋₁ / (hₜ₋₁ / xₜ)"),
    "ratio of products": (lambda self, x, h: (h * x) / (h * x), "hₜ₋₁ ⊙ xₜ / (hₜ₋₁ ⊙ xₜ)"),
    "ratio of a map": (lambda self, x, h: self.V[h] / 2, "(V hₜ₋₁) / 2"),
    "greater and smaller": (
        lambda self, x, h: maximum(h, minimum(0, x + h)),
        "max(hₜ₋₁, min(0, xₜ + hₜ₋₁))",
    ),
    "absolute sum": (lambda self, x, h: abs(h + x) * h, "|hₜ₋₁ + xₜ| ⊙ hₜ₋₁"),
    "square of a square": (lambda self, x, h: square(square(h + x)), "((hₜ₋₁ + xₜ)²)²"),
    "root": (lambda self, x, h: sqrt(h + 1) * x, "√(hₜ₋₁ + 1) ⊙ xₜ"),
}


@pytest.mark.parametrize("name", BRACKETS)
def test_brackets(name: str) -> None:
    step, expected = BRACKETS[name]
    assert right_sides(step) == [f"hₜ = {expected}"]


def test_a_name_that_means_two_values_names_neither() -> None:
    def squash(self: Any, v: Any) -> Any:
        a = tanh(v)
        return relu(a)

    def step(self: Any, x: Any, h: Any) -> Any:
        return self.squash(h) + self.squash(x)

    assert right_sides(step, squash=squash) == ["hₜ = ReLU(tanh(hₜ₋₁)) + ReLU(tanh(xₜ))"]


def test_a_state_or_input_that_is_named_anew_is_written_out() -> None:
    def step(self: Any, x: Any, h: Any) -> Any:
        x = tanh(x)
        h = tanh(h)
        return x + h

    assert right_sides(step) == ["hₜ = tanh(xₜ) + tanh(hₜ₋₁)"]


def test_states_that_share_a_value_or_take_the_old_one() -> None:
    def step(self: Any, x: Any, h: Any, c: Any, d: Any) -> Any:
        new = tanh(x + d)
        return new, new, c

    assert right_sides(step, states=("h", "c", "d")) == [
        "hₜ = tanh(xₜ + dₜ₋₁)",
        "cₜ = hₜ",
        "dₜ = cₜ₋₁",
    ]


def test_long_names_stand_upright_and_carry_time_in_their_subscript() -> None:
    def step(self: Any, x: Any, h_slow: Any) -> Any:
        gate = sigmoid(self.W[h_slow, x])
        candidate = tanh(self.q_slow * x)
        return gate * candidate

    kind: type[Unit] = type("Sample", (Common,), {"step": step, "states": ("h_slow",)})
    shown = latex(trace(kind(), 2, 2)).split("\n")[1:-1]
    assert shown == [
        r"\mathrm{gate}_t &= \sigma(W [h_{\mathrm{slow},t-1}, x_t] + b_W) \\",
        r"\tilde{h}_{\mathrm{slow},t} &= \tanh(q_{\mathrm{slow}} \odot x_t) \\",
        r"h_{\mathrm{slow},t} &= \mathrm{gate}_t \odot \tilde{h}_{\mathrm{slow},t}",
    ]


def test_values_with_and_without_a_name() -> None:
    graph = trace(UNITS["lstm"], 2, 3)
    shown = {node: expression(graph, node) for node in graph.nodes}
    assert shown[graph.results[0]] == "hₜ"
    assert shown[graph.results[0].args[1]] == "tanh(cₜ)"
    assert "c̃ₜ" in shown.values()


def test_ratios_roots_and_squares_in_latex() -> None:
    class Ratios(Unit):
        def step(self, x: Any, h: Any) -> Any:
            return square(h) / sqrt(x + 1) + abs(h)

    expected = r"h_t &= \frac{h_{t-1}^2}{\sqrt{x_t + 1}} + \lvert h_{t-1} \rvert"
    assert latex(trace(Ratios(), 2, 2)).split("\n")[1] == expected


def test_a_step_with_a_loop_is_written_by_numbered_values() -> None:
    first, *others, last = latex(trace(with_a_loop(30), 2, 2)).split("\n")[1:-1]
    a = r"\tanh(W [h_{t-1}, x_t] + b_W)"
    b = rf"{a} + 0.5 \tanh({a}) - 0.3 {a}"
    assert first == rf"v_{{1,t}} &= {b} \\"
    for number, line in enumerate(others, 2):
        assert line.startswith(f"v_{{{number},t}} &= ")
        assert f"v_{{{number - 1},t}}" in line
    assert last.startswith("h_t &= ")
    assert max(map(len, others)) < 300


def test_numbered_values_have_no_name_that_is_taken() -> None:
    def step(self: Any, x: Any, h: Any) -> Any:
        a = tanh(self.W[h, x])
        for _ in range(3):
            a = a + 0.5 * tanh(a) - 0.3 * a
        v_1 = tanh(a)
        return v_1 * self.v_2

    kind: type[Unit] = type("Sample", (Common,), {"step": step, "v_2": Vector()})
    left = [line.split(" &= ")[0] for line in latex(trace(kind(), 2, 2)).split("\n")[1:-1]]
    assert left == ["v_{3,t}", "a_t", "v_{1,t}", "h_t"]
