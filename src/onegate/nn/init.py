"""Initial values of a layer's parameters, by name and per map.

`init=` of a layer is plain data, one of

- a name: "uniform" (torch's, the default), "normal" (0.1, as the MGU's authors), "orthogonal",
  "identity", "glorot", "zeros"; a name with its argument: ("normal", 0.01), ("uniform", 0.08);
  or a number;
- a mapping from parameters to those. Its keys are full keys ("f.U"), maps ("f") or kinds ("U", "W",
  "b", and "p" for the vectors p_i, p_f); the most specific one wins, and what is not named takes
  the unit's own default;
- `forget_bias(value)` or `chrono(longest)`.

A name that stands for a whole layer or map leaves the biases zero, unless it is "uniform". A
norm's gain begins at 1 and its shift at 0, unless their keys or kinds are named.

>>> onegate.MGU(28, 100, init={"U": "orthogonal", "f.b": -1.0})
>>> onegate.LSTM(1, 100, init=chrono(784))
"""

from __future__ import annotations

import difflib
import math
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Any, Final, TypeAlias

import torch
from torch import Tensor

from onegate.language import Graph
from onegate.properties import Bias, Retention, retention
from onegate.values import is_number

Fill: TypeAlias = Callable[..., None]


def forget_bias(value: float, rest: Any = None) -> tuple[Any, ...]:
    """Every gate that keeps a state gets a bias of `value` towards keeping; `rest` is as `init=`.

    The sign is the unit's: +value for f of LSTM, -value for f of MGU, where f = 1 overwrites.
    """
    return "forget_bias", value, rest


def chrono(longest: float, rest: Any = None) -> tuple[Any, ...]:
    """Biases for memories of up to `longest` steps (Tallec and Ollivier 2018).

    The bias towards keeping is log u, u uniform in [1, longest - 1]; a gate of its own for writing
    (i of LSTM) gets -log u. Signs are the unit's; `rest` is as `init=`.
    """
    return "chrono", longest, rest


def initialise(graph: Graph, parameters: Mapping[str, Tensor], init: Any = None) -> None:
    """Fills the parameters of one layer and direction in place; keys are the graph's."""
    gates, rest = _parts(init)
    tables = [_table(rest), graph.unit.init, {"": "uniform"}]
    with torch.no_grad():
        for key, tensor in parameters.items():
            _fill(tensor, key, graph, *_rule(key, tables))
        if gates is not None:
            for kept in _retentions(graph):
                _open_for(kept, gates, parameters, graph)


def check(init: Any, graphs: Iterable[Graph]) -> None:
    """Refuses an `init=` that names a parameter which none of the layers has."""
    known = {name for graph in graphs for key in graph.parameters for name in _names(key)}
    for key in _table(_parts(init)[1]):
        if key not in known:
            raise ValueError(
                f"init: no parameter, map or kind is called {key!r}; {_near(str(key), known)}"
            )


def _parts(init: Any) -> tuple[tuple[str, float] | None, Any]:
    """(what to do with the gates' biases, what with everything else)."""
    if isinstance(init, (tuple, list)) and init and init[0] in ("forget_bias", "chrono"):
        name, *given = init
        value, rest = (*given, None, None)[:2]
        if not is_number(value) or (name == "chrono" and value < 2):
            needs = "a number of steps, 2 or more" if name == "chrono" else "a number"
            raise ValueError(f"init: {name} takes {needs}, got {value!r}")
        if len(given) > 2:
            raise ValueError(f"init: {name} takes a number and the rest, got {tuple(given)!r}")
        return (name, float(value)), rest
    return None, init


def _table(init: Any) -> Mapping[str, Any]:
    if init is None:
        return {}
    return init if isinstance(init, Mapping) else {"": init}


def _names(key: str) -> Iterator[str]:
    """The names that reach a parameter, the most specific first: i.U_f, i, U_f, U, everything."""
    yield key
    group, _, kind = key.rpartition(".")
    if group:
        yield group
        yield kind
    yield kind.partition("_")[0]
    yield ""


def _rule(key: str, tables: Iterable[Mapping[str, Any]]) -> tuple[bool, Any]:
    """(whether it names this kind of parameter itself, how to fill it)."""
    for table in tables:
        for name in _names(key):
            if name in table:
                return name not in ("", key.rpartition(".")[0]), table[name]
    raise AssertionError(key)


def _fill(tensor: Tensor, key: str, graph: Graph, itself: bool, rule: Any) -> None:
    group, _, kind = key.rpartition(".")
    kind = kind.partition("_")[0]
    if group and kind in OF_NORMS and not itself:
        tensor.fill_(OF_NORMS[kind])
        return
    if is_number(rule):
        tensor.fill_(float(rule))
        return
    name, *arguments = rule if isinstance(rule, (tuple, list)) and rule else (rule,)
    if not isinstance(name, str) or name not in FILLS:
        hint = _near(str(name), FILLS)
        raise ValueError(f"init: {key} is to be filled by {rule!r}, which is not known; {hint}")
    stays_zero = kind == "b" or (tensor.dim() < 2 and name in OF_MATRICES)
    if stays_zero and not itself and name != "uniform":
        name, arguments = "zeros", []
    if name in OF_MATRICES and tensor.dim() < 2:
        raise ValueError(f"init: {name!r} is for matrices, {key} is {tuple(tensor.shape)}")
    if name == "identity" and tensor.shape[-2] != tensor.shape[-1]:
        raise ValueError(
            f"init: 'identity' is for square matrices, {key} is {tuple(tensor.shape)}; "
            "name the square ones, such as init={'U': 'identity'}"
        )
    if not all(map(is_number, arguments)) or len(arguments) > (name != "zeros"):
        takes = "no argument" if name == "zeros" else "one number at most"
        raise ValueError(f"init: {name!r} takes {takes}, got {tuple(arguments)!r}")
    if name in ("uniform", "normal") and any(argument < 0 for argument in arguments):
        raise ValueError(f"init: {name!r} takes a width of 0 or more, got {arguments[0]!r}")
    # A map with heads has a matrix for each.
    for matrix in tensor if tensor.dim() == 3 and name in OF_MATRICES else (tensor,):
        FILLS[name](matrix, graph, *map(float, arguments))


def _uniform(tensor: Tensor, graph: Graph, bound: float | None = None) -> None:
    bound = 1 / math.sqrt(graph.hidden_size) if bound is None else bound
    tensor.uniform_(-bound, bound)


def _normal(tensor: Tensor, _: Graph, std: float = 0.1) -> None:
    tensor.normal_(0, std)


def _orthogonal(tensor: Tensor, _: Graph, gain: float = 1.0) -> None:
    # The decomposition behind it does not exist for half precision.
    wide = torch.empty_like(tensor, dtype=torch.promote_types(tensor.dtype, torch.float32))
    tensor.copy_(torch.nn.init.orthogonal_(wide, gain))


def _identity(tensor: Tensor, _: Graph, scale: float = 1.0) -> None:
    tensor.copy_(scale * torch.eye(tensor.shape[0], dtype=tensor.dtype, device=tensor.device))


def _glorot(tensor: Tensor, _: Graph, gain: float = 1.0) -> None:
    torch.nn.init.xavier_uniform_(tensor, gain)


def _zeros(tensor: Tensor, _: Graph) -> None:
    tensor.zero_()


FILLS: Final[Mapping[str, Fill]] = {
    "uniform": _uniform,
    "normal": _normal,
    "orthogonal": _orthogonal,
    "identity": _identity,
    "glorot": _glorot,
    "zeros": _zeros,
}
OF_NORMS: Final = {"gain": 1.0, "shift": 0.0}  # unless `init=` names them
OF_MATRICES: Final = frozenset({"orthogonal", "identity", "glorot"})


def _retentions(graph: Graph) -> tuple[Retention, ...]:
    found = retention(graph)
    if not any(kept.keeps.key for kept in found):
        raise ValueError(
            f"init: {graph.unit.name} has no gate with a bias that keeps a state"
            + ("" if graph.bias else " in a layer made with bias=False")
        )
    return found


def _open_for(
    kept: Retention, gates: tuple[str, float], parameters: Mapping[str, Tensor], graph: Graph
) -> None:
    """Sets the biases by which a state is kept, and written."""
    name, value = gates
    (size,) = (state.size for state in graph.states if state.name == kept.state)
    assert size is not None
    if name == "forget_bias":
        _set(kept.keeps, torch.full((size,), value, dtype=torch.float64), parameters)
        return
    towards_keeping = torch.empty(size).uniform_(1, value - 1).log()
    _set(kept.keeps, towards_keeping, parameters)
    if kept.writes is not None:
        _set(kept.writes, -towards_keeping, parameters)


def _set(bias: Bias, values: Tensor, parameters: Mapping[str, Tensor]) -> None:
    if bias.key is not None:
        parameters[bias.key].copy_(bias.sign * values)


def _near(name: str, known: Iterable[str]) -> str:
    names = sorted(name for name in known if name)
    near = [n for n in names if n.lower() == name.lower()] or difflib.get_close_matches(name, names)
    return f"did you mean {near[0]!r}?" if near else f"known: {', '.join(names)}"
