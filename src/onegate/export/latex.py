"""A unit's equations as text: LaTeX as in the paper's Table 1, or one line each for a terminal.

Every local name of `step` and every new state is one equation; values without a name are written
out where they are used.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass
from typing import Protocol

from onegate.language import Graph, Value

# How tightly a piece of text holds together: anything looser than its place needs brackets.
_SUM, _PRODUCT, _MAP, _ATOM = range(4)


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
    return _Writer(graph, _TEXT).text(node)[0]


class _Symbol(Protocol):
    def __call__(self, name: str, time: str = "", tilde: bool = False) -> str: ...


@dataclass(frozen=True)
class _Style:
    """One way of writing; `now` and `before` are the subscripts of time."""

    functions: dict[str, str]
    times: str
    now: str
    before: str
    symbol: _Symbol


def _latex_symbol(name: str, time: str = "", tilde: bool = False) -> str:
    """`b_f` is b with subscript f; a time joins the subscript."""
    letter, _, below = name.partition("_")
    letter = letter if len(letter) == 1 else f"\\mathrm{{{letter}}}"
    letter = f"\\tilde{{{letter}}}" if tilde else letter
    subscript = ",".join(filter(None, (below and _latex_symbol(below), time)))
    if len(subscript) > 1:
        subscript = f"{{{subscript}}}"
    return f"{letter}_{subscript}" if subscript else letter


def _text_symbol(name: str, time: str = "", tilde: bool = False) -> str:
    letter, line, below = name.partition("_")
    accent = "\N{COMBINING TILDE}" if tilde else ""
    return f"{letter}{accent}{line}{below}{time}"


_LATEX = _Style(
    functions={"sigmoid": "\\sigma", "tanh": "\\tanh", "relu": "\\mathrm{ReLU}"},
    times=" \\odot ",
    now="t",
    before="t-1",
    symbol=_latex_symbol,
)
_TEXT = _Style(
    functions={"sigmoid": "\N{GREEK SMALL LETTER SIGMA}", "tanh": "tanh", "relu": "ReLU"},
    times=" ⊙ ",
    now="ₜ",
    before="ₜ₋₁",
    symbol=_text_symbol,
)


def _equations(graph: Graph, style: _Style) -> list[tuple[str, str]]:
    """Left and right side of each equation, in the order in which `step` computes."""
    writer = _Writer(graph, style)
    pairs = [(name, writer.written_out(node)[0]) for node, name in writer.names.items()]
    shared = [
        (style.symbol(state.name, style.now), writer.text(result)[0])
        for state, result in zip(graph.states, graph.results, strict=True)
        if writer.owner.get(result) is not state
    ]
    return pairs + shared


class _Writer:
    """Writes the values of one graph in one style.

    owner: the state whose new value a node is; a node that two states take belongs to the first.
    names: the symbol of each node that has an equation of its own.
    """

    def __init__(self, graph: Graph, style: _Style) -> None:
        self.graph, self.style = graph, style
        self.owner: dict[Value, Value] = {}
        for state, result in zip(graph.states, graph.results, strict=True):
            if result.op not in ("input", "state", "vector"):
                self.owner.setdefault(result, state)
        claims = Counter(graph.names.values())
        taken = {graph.input.name, *graph.unit.states}
        own = {name for name, times in claims.items() if times == 1} - taken
        self.names = {n: symbol for n in graph.nodes if (symbol := self._own_symbol(n, own))}

    def _own_symbol(self, node: Value, own: set[str]) -> str:
        """The symbol that stands for `node`; empty where it is to be written out.

        own: the local names that mean one value, which is neither the input nor a state.
        """
        style = self.style
        if node in self.owner:
            return style.symbol(self.owner[node].name, style.now)
        name = self.graph.names.get(node)
        if name not in own or node.op == "vector":
            return ""
        if name == "candidate":
            return style.symbol(self._candidate_for(node), style.now, tilde=True)
        return style.symbol(name, style.now)

    def _candidate_for(self, node: Value) -> str:
        """The state that is first computed from `node`: c of LSTM, the one state of GRU."""
        for result in self.graph.nodes:
            if result in self.owner and self.graph.depends_on(result, [node]):
                return self.owner[result].name
        return self.graph.states[0].name

    def text(self, node: Value) -> tuple[str, int]:
        """How `node` is written where it is used, and how tightly that holds together."""
        if node in self.names:
            return self.names[node], _ATOM
        style = self.style
        if node.op in ("input", "state"):
            time = style.now if node.op == "input" else style.before
            return style.symbol(node.name, time), _ATOM
        if node.op == "vector":
            return style.symbol(node.name), _ATOM
        return self.written_out(node)

    def written_out(self, node: Value) -> tuple[str, int]:
        """The right side of the equation of `node`, and how tightly it holds together."""
        match node.op:
            case "constant":
                return f"{node.number:g}", _ATOM if node.number >= 0 else _SUM
            case "affine":
                return self._map(node)
            case "add":
                left, right = (self._within(a, _SUM) for a in node.args)
                return f"{left} + " + (f"({right})" if right.startswith("-") else right), _SUM
            case "sub":
                left, right = map(self._within, node.args, (_SUM, _PRODUCT))
                return f"{left} - {right}", _SUM
            case "neg":
                return f"-{self._within(node.args[0], _PRODUCT)}", _SUM
            case "mul":
                return self._product(*node.args)
            case _:
                return f"{self.style.functions[node.op]}({self.text(node.args[0])[0]})", _ATOM

    def _within(self, node: Value, place: int) -> str:
        """`node` in a place that needs what is at least as tight as `place`."""
        text, tightness = self.text(node)
        return text if tightness >= place else f"({text})"

    def _product(self, left: Value, right: Value) -> tuple[str, int]:
        if right.op == "constant" and left.op != "constant":
            left, right = right, left
        if left.op == "constant":
            return f"{self._within(left, _ATOM)} {self._within(right, _MAP)}", _PRODUCT
        factors = [self._factor(left), self._factor(right)]
        return self.style.times.join(factors), _PRODUCT

    def _factor(self, node: Value) -> str:
        text, tightness = self.text(node)
        return f"({text})" if tightness in (_SUM, _MAP) else text

    def _map(self, node: Value) -> tuple[str, int]:
        """`W_f [h, x] + b_f`; for one operand `W_f x + b_f`, or `U_f h` where it is recurrent."""
        used = self.graph.maps[node]
        letter, _, subscript = used.name.partition("_")
        if len(used.operands) == 1:
            if letter == "W":
                letter = used.weights[0].rpartition(".")[2]
            operand = self._within(used.operands[0], _ATOM)
        else:
            operand = f"[{', '.join(self.text(o)[0] for o in used.operands)}]"
        matrix = "_".join(filter(None, (letter, subscript)))
        product = f"{self.style.symbol(matrix)} {operand}"
        if used.bias is None:
            return product, _MAP
        bias = used.bias.rpartition(".")[0]
        return f"{product} + {self.style.symbol('b_' + bias)}", _SUM
