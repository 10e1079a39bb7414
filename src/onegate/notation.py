"""How the values of a graph are called and written: once, for equations, pictures and probes."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass
from itertools import count

from onegate.language import Graph, Map, Value, in_order

# fmt: off
_GREEK = {
    "alpha", "beta", "gamma", "delta", "epsilon", "zeta", "eta", "theta", "kappa", "lambda", "mu",
    "nu", "xi", "rho", "sigma", "tau", "phi", "chi", "psi", "omega",
}
# fmt: on
# So many symbols are written out once; a value that is used more often has a name earlier.
_LONG, _LONG_IF_SHARED = 40, 6
CANDIDATE = "candidate"  # the local name that is written as the state's, with a tilde


@dataclass(frozen=True)
class Name:
    """What a value is called: a word, or for a candidate the state that it is one for."""

    word: str
    candidate: bool = False

    @property
    def local(self) -> str:
        """The name in the unit's `step`."""
        return CANDIDATE if self.candidate else self.word


@dataclass(frozen=True, eq=False)
class Notation:
    """The names of a graph's values.

    owner: the state whose new value a node is; a node that two states take belongs to the first.
    names: of the nodes that have one, in the order of `step`. A local name that means several
        values, or the name of the input or a state for another value, would mislead and is none.
        What has none and is long, as where `step` has a loop, is called v_1, v_2, ...: written out
        in full wherever it is used, equations would double with each turn.
    """

    owner: Mapping[Value, Value]
    names: Mapping[Value, Name]

    @classmethod
    def of(cls, graph: Graph) -> Notation:
        """The notation of a graph."""
        owner: dict[Value, Value] = {}
        for state, result in zip(graph.states, graph.results, strict=True):
            if result.args:
                owner.setdefault(result, state)
        claims = Counter(graph.names.values())
        taken = {*graph.unit.inputs, *graph.unit.states}
        names: dict[Value, Name] = {}
        uses = Counter(operand for node in graph.nodes for operand in node.args)
        length: dict[Value, int] = {}  # in symbols, written out
        known = {*graph.names.values(), *(node.name for node in graph.nodes)}
        numbered = (name for name in map("v_{}".format, count(1)) if name not in known)
        for node in graph.nodes:
            local = graph.names.get(node, "")
            if node in owner:
                names[node] = Name(owner[node].name)
            elif local == CANDIDATE and claims[local] == 1:
                names[node] = Name(_candidate_for(graph, owner, node), candidate=True)
            elif claims[local] == 1 and local not in taken and node.op != "vector":
                names[node] = Name(local)
            length[node] = sum(1 if a in names else length[a] for a in node.args) or 1
            longest = _LONG_IF_SHARED if uses[node] > 1 else _LONG
            if node not in names and length[node] > longest:
                names[node] = Name(next(numbered))
        return cls(owner, names)


def _candidate_for(graph: Graph, owner: Mapping[Value, Value], node: Value) -> str:
    """The state that is first computed from `node`: c of LSTM, the one state of GRU."""
    for result in graph.nodes:
        if result in owner and node in in_order([result]):
            return owner[result].name
    return graph.states[0].name


def symbol(name: str, time: str = "", tilde: bool = False) -> str:
    r"""A name as LaTeX, which is mathtext too; a time joins the subscript.

    >>> symbol("W_f"), symbol("h", "t-1"), symbol("forget_gate"), symbol("h", tilde=True)
    ('W_f', 'h_{t-1}', '\\mathrm{forget}_{\\mathrm{gate}}', '\\tilde{h}')
    """
    base, _, index = name.strip("_").partition("_")
    letter = _word(base) or r"\_"
    below = ",".join(filter(None, (index and symbol(index), time)))
    below = below if len(below) <= 1 else f"{{{below}}}"
    return (rf"\tilde{{{letter}}}" if tilde else letter) + (f"_{below}" if below else "")


def _word(word: str) -> str:
    if word in _GREEK:
        return rf"\{word}"
    letters = word.replace("_", r"\_")
    return letters if len(word) <= 1 or word.isdigit() else rf"\mathrm{{{letters}}}"


def plain_symbol(name: str, time: str = "", tilde: bool = False) -> str:
    """The same as plain text."""
    letter, line, below = name.partition("_")
    accent = "\N{COMBINING TILDE}" if tilde else ""
    return f"{letter}{accent}{line}{below}{time}"


def vector_name(vector: Value) -> str:
    """Of a learned vector; gain and shift of the norm N_f are gamma_f and beta_f."""
    norm, _, kind = vector.name.rpartition(".")
    if not norm:
        return vector.name
    letter, _, number = kind.partition("_")
    greek = {"gain": "gamma", "shift": "beta"}[letter]
    return "_".join(filter(None, (greek, norm.removeprefix("N_"), number)))


def matrix_name(used: Map) -> str:
    """Of a map: W of more than one vector and of the input, U of a state alone."""
    letter, line, index = used.name.partition("_")
    if letter == "W" and len(used.operands) == 1:
        letter = used.weights[0].rpartition(".")[2]
    return f"{letter}{line}{index}"


def bias_name(used: Map) -> str | None:
    """Of a map: b_f of the map f; None where it has no bias."""
    return None if used.bias is None else f"b_{used.bias.rpartition('.')[0]}"
