"""A unit's equations as text: LaTeX as in the paper's Table 1, or one line each for a terminal.

Every local name of `step` and every new state is one equation; values without a name are written
out where they are used.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Final

from onegate.language import Graph, Value
from onegate.notation import Notation, bias_name, matrix_name, plain_symbol, symbol, vector_name
from onegate.ops import OPERATIONS, is_norm

# What each place of a spelling (see `onegate.ops`) takes without brackets, told by how tightly a
# piece of text holds together.
_PLACES: Final = {
    "": ("sum", "product", "map", "atom"),
    "sum": ("sum", "product", "map", "atom"),
    "term": ("sum", "product", "map", "atom"),  # and nothing that begins with a minus
    "product": ("product", "map", "atom"),
    "map": ("map", "atom"),
    "factor": ("product", "atom"),
    "atom": ("atom",),
}


def latex(graph: Graph) -> str:
    """The unit's equations in an align environment.

    >>> print(latex(trace(UNITS["mingru"], 1, 1)))
    \\begin{align}
    z_t &= \\sigma(W_z x_t + b_z) \\\\
    \\tilde{h}_t &= W_h x_t + b_h \\\\
    h_t &= (1 - z_t) \\odot h_{t-1} + z_t \\odot \\tilde{h}_t
    \\end{align}
    """
    lines = [f"{left} &= {right}" for left, right in _equations(graph, _LATEX)]
    return "\n".join(["\\begin{align}", " \\\\\n".join(lines), "\\end{align}"])


def equations(graph: Graph) -> list[str]:
    """The unit's equations in plain text, one line each.

    >>> equations(trace(UNITS["simple"], 1, 1))
    ['hₜ = tanh(W_h [hₜ₋₁, xₜ] + b_h)']
    """
    return [f"{left} = {right}" for left, right in _equations(graph, _TEXT)]


def expression(graph: Graph, node: Value) -> str:
    """A value as plain text: its symbol, or what it is computed from where it has none.

    >>> graph = trace(UNITS["lstm"], 1, 1)
    >>> expression(graph, graph.results[0].args[1])
    'tanh(cₜ)'
    """
    return _Writer(graph, _TEXT).text(node).text


@dataclass(frozen=True)
class _Style:
    """One way of writing; `now` and `before` are the subscripts of time."""

    spelling: Callable[[str], str]  # by the name of an operation
    now: str
    before: str
    symbol: Callable[..., str]  # name, time, tilde


_LATEX: Final = _Style(lambda op: OPERATIONS[op].latex, "t", "t-1", symbol)
_TEXT: Final = _Style(
    lambda op: OPERATIONS[op].text or OPERATIONS[op].latex, "ₜ", "ₜ₋₁", plain_symbol
)


def _equations(graph: Graph, style: _Style) -> list[tuple[str, str]]:
    """Left and right side of each equation, in the order in which `step` computes."""
    writer = _Writer(graph, style)
    named = writer.notation.names
    pairs = [(writer.text(node).text, writer.written_out(node).text) for node in named]
    shared = [
        (style.symbol(state.name, style.now), writer.text(result).text)
        for state, result in zip(graph.states, graph.results, strict=True)
        if writer.notation.owner.get(result) is not state
    ]
    return pairs + shared


@dataclass(frozen=True)
class _Piece:
    """A piece of an equation, which brackets itself where its place needs it."""

    text: str
    binding: str

    def __format__(self, place: str) -> str:
        fits = self.binding in _PLACES[place]
        if place == "term" and self.text.startswith("-"):
            fits = False
        return self.text if fits else f"({self.text})"


class _Writer:
    """Writes the values of one graph in one style."""

    def __init__(self, graph: Graph, style: _Style) -> None:
        self.graph, self.style = graph, style
        self.notation = Notation.of(graph)

    def text(self, node: Value) -> _Piece:
        """How `node` is written where it is used."""
        style = self.style
        if name := self.notation.names.get(node):
            return _Piece(style.symbol(name.word, style.now, tilde=name.candidate), "atom")
        if node.op in ("input", "mask", "state"):
            time = style.before if node.op == "state" else style.now
            return _Piece(style.symbol(node.name, time), "atom")
        if node.op == "vector":
            return _Piece(style.symbol(vector_name(node)), "atom")
        return self.written_out(node)

    def written_out(self, node: Value) -> _Piece:
        """The right side of the equation of `node`."""
        if node.op == "constant":
            return _Piece(f"{node.number:g}", "atom" if node.number >= 0 else "sum")
        if node.op == "affine":
            return self._map(node)
        operands, spelling = node.args, self.style.spelling(node.op)
        if is_norm(node.op):  # LN(a; b, c): a, with the statistics of all three
            first, *others = (self.text(v).text for v in (operands[0], *operands[2:]))
            together = f"{first}; {', '.join(others)}" if others else first
            return _Piece(spelling.format(together), "atom")
        if node.op == "mul" and any(a.op == "constant" for a in operands):
            operands = tuple(sorted(operands, key=lambda a: a.op != "constant"))
            spelling = "{0:atom} {1:map}"  # 2 h
        written = spelling.format(*map(self.text, operands))
        return _Piece(written, OPERATIONS[node.op].binding)

    def _map(self, node: Value) -> _Piece:
        """`W_f [h, x] + b_f`; for one operand `W_f x + b_f`, or `U_f h` where it is recurrent."""
        used, symbol = self.graph.maps[node], self.style.symbol
        written = [self.text(operand) for operand in used.operands]
        if len(written) == 1:
            operand = f"{written[0]:atom}"
        else:
            operand = f"[{', '.join(piece.text for piece in written)}]"
        product = f"{symbol(matrix_name(used))} {operand}"
        bias = bias_name(used)
        return (
            _Piece(product, "map") if bias is None else _Piece(f"{product} + {symbol(bias)}", "sum")
        )
