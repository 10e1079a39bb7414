"""A layer with its unit, options and weights, or any model's weights, in one safetensors file.

The file's metadata describe every layer of ours in the model, under its path in it. A unit is
named, never stored: one of the library by its name in the registry, one's own by module and
qualified name, and by name and SHA-256 of its file. Loading imports nothing and runs nothing that a
file names: it looks among the units that the program has defined. A digest of the equations says
whether those are the ones that the weights were trained with.
"""

from __future__ import annotations

import hashlib
import inspect
import json
import sys
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import fields
from pathlib import Path
from typing import Any, Final, TypeVar, overload

from torch import Tensor, nn

from onegate import files, tensor_files
from onegate.language import Graph, Unit, in_order
from onegate.nn import drop_in
from onegate.nn.cells import Cell, Map, Weights
from onegate.nn.layers import Recurrent
from onegate.nn.named import CELLS, LAYERS, RNN, RNNCell
from onegate.units import UNITS
from onegate.units.lstm import LSTMProjected

_M = TypeVar("_M", bound=nn.Module)

_KEY: Final = "onegate"  # of the description in the metadata
_FORMAT: Final = 1
_KINDS: Final[dict[str, type[Recurrent | Cell]]] = {"Recurrent": Recurrent, "Cell": Cell}
# Arguments of a layer that are described otherwise, or belong to a machine.
_APART: Final = {"self", "unit", "device", "dtype", "unit_options"}
# Arguments that a layer may have otherwise and still be the one whose weights these are.
_FREE: Final = {
    *("engine", "init", "recompute", "dropout", "input_dropout", "recurrent_dropout"),
    *("candidate_dropout", "weight_drop"),
}
_MOST_LAYERS: Final = 1000  # of a unit without parameters; all others have tensors for each

_DESCRIPTION: Final = {
    "format": int,
    "model": str,
    "layers": {
        ...: {
            "kind": {*_KINDS},
            "class": {"plain", "named", "torch", ""},  # how it is made; "": by its own program
            "named": str,  # onegate.LSTM, of the unit LSTMProjected, is named after lstm
            "dtype": {*tensor_files.DTYPES},
            "unit": {
                "name": str,
                "module?": str,
                "qualname?": str,
                "file?": str,
                "sha256?": str,
                "options": {},
                "equations": str,
            },
            "arguments": {},
        }
    },
}


def save(model: nn.Module, path: str | Path) -> Path:
    """Writes a layer or cell of any unit, or any other module's weights, to a safetensors file.

    Kept: the unit, the arguments of the layer, all that `state_dict()` has. Not kept: device,
    training or evaluation, frozen weights, hooks, optimisers. Weights under parametrizations are
    kept as the parametrizations have them, and are loaded with `model=`.

    >>> onegate.save(layer, "layer.safetensors")
    """
    if not isinstance(model, nn.Module):
        raise TypeError(f"model is a {type(model).__name__}, expected a torch.nn.Module")
    path = Path(path)
    files.require_writable(path)
    described = {
        "format": _FORMAT,
        "model": type(model).__qualname__,
        "layers": {name: _described(layer) for name, layer in _layers(model)},
    }
    text = json.dumps(described, allow_nan=False)
    tensor_files.write(path, model.state_dict(), {"format": "pt", _KEY: text})
    return path


@overload
def load(path: str | Path, *, units: Iterable[type[Unit]] = ()) -> nn.Module: ...
@overload
def load(path: str | Path, *, model: _M, units: Iterable[type[Unit]] = ()) -> _M: ...
def load(
    path: str | Path, *, model: nn.Module | None = None, units: Iterable[type[Unit]] = ()
) -> nn.Module:
    """The layer or cell that `save` wrote, on the CPU and ready to be trained.

    model: to be filled in place and returned, for a file that holds more than one layer or cell.
        Names, shapes and dtypes must be the file's, and so must the units of its layers.
    units: classes of one's own that the file's units may be, beside those that are defined already.

    >>> layer = onegate.load("layer.safetensors")
    """
    path = Path(path)
    tensors, metadata = tensor_files.read(path)
    try:
        described = _description(metadata)
        if model is None:
            return _built(described, tensors, [*units])
        _require_tensors(model.state_dict(), tensors)
        _require_same_layers(model, described)
    # torch raises RuntimeError for sizes beyond its arithmetic.
    except (ValueError, TypeError, RuntimeError) as error:
        raise ValueError(f"{path}: {error}") from None
    model.load_state_dict(tensors)  # copies: weights that are tied stay so
    return model


def _layers(model: nn.Module) -> Iterator[tuple[str, Recurrent | Cell]]:
    """Every layer and cell of ours in a model, itself too, with its path."""
    for name, module in model.named_modules():
        if isinstance(module, Recurrent | Cell):
            yield name, module


# What is written.


def _described(layer: Recurrent | Cell) -> dict[str, Any]:
    kind = Recurrent if isinstance(layer, Recurrent) else Cell
    classes = {kind: "plain", RNN: "torch", RNNCell: "torch"}
    classes |= dict.fromkeys((*LAYERS.values(), *CELLS.values()), "named")
    weights = _first(layer)
    options = {name: getattr(layer, name) for name in _arguments(kind)}
    return {
        "kind": kind.__name__,
        "class": classes.get(type(layer), ""),
        "named": getattr(layer, "unit_name", ""),
        "dtype": tensor_files.DTYPE_NAMES.get(weights.example().dtype, ""),
        "unit": _reference(layer.unit) | {"equations": equations(weights.graph)},
        "arguments": {name: _as_json(name, value) for name, value in options.items()},
    }


def _arguments(kind: type[Recurrent | Cell]) -> list[str]:
    return [name for name in inspect.signature(kind.__init__).parameters if name not in _APART]


def _first(layer: Recurrent | Cell) -> Weights:
    return layer if isinstance(layer, Cell) else layer._weights()[0][0]


def _as_json(name: str, value: Any) -> Any:
    """The value, if it comes back from JSON as it is; tuples come back by `_from_json`."""
    try:
        if _from_json(json.loads(json.dumps(value, allow_nan=False))) == value:
            return value
    except (TypeError, ValueError):
        pass
    raise ValueError(f"{name} is {value!r}, which is no plain data and cannot be saved")


def _from_json(value: Any) -> Any:
    if isinstance(value, list):
        return tuple(_from_json(item) for item in value)
    if isinstance(value, dict):
        return {name: _from_json(item) for name, item in value.items()}
    return value


def _reference(unit: Unit) -> dict[str, Any]:
    options = {name: _as_json(f"{unit.name}: {name}", v) for name, v in unit.options().items()}
    reference = {"name": unit.name, "options": options}
    if _is_ours(type(unit)):
        return reference
    kind = type(unit)
    return reference | {"module": kind.__module__, "qualname": kind.__qualname__} | _file(kind)


def _is_ours(kind: type[Unit]) -> bool:
    return kind.__module__.startswith("onegate.units.")


def _file(kind: type[Unit]) -> dict[str, str]:
    """Name and SHA-256 of the file that a class is from; empty for a notebook's."""
    path = getattr(sys.modules.get(kind.__module__), "__file__", None)
    if path is None or not Path(path).is_file():
        return {}
    return {"file": Path(path).name, "sha256": hashlib.sha256(Path(path).read_bytes()).hexdigest()}


def equations(graph: Graph) -> str:
    """SHA-256 of what a step computes, and from which parameters; names of values do not count."""
    order = in_order(graph.results)
    place = {value: number for number, value in enumerate(order)}
    lines = []
    for value in order:
        used = graph.maps.get(value)
        keys = () if used is None else (*used.weights, used.bias)
        operands = [place[one] for one in value.operands]
        lines.append([value.op, value.name, repr(value.number), operands, keys])
    text = json.dumps([lines, [place[one] for one in graph.results]])
    return hashlib.sha256(text.encode()).hexdigest()


# What is read.


def _description(metadata: Mapping[str, str]) -> dict[str, Any]:
    if _KEY not in metadata:
        return {"model": "", "layers": {}}
    described = files.parse_json(metadata[_KEY].encode(), unique=True)
    files.require(described, {"format": int}, "")
    if described["format"] != _FORMAT:
        raise ValueError(f"format {described['format']} is not known to this version of onegate")
    files.require(described, _DESCRIPTION, "")
    found: dict[str, Any] = described
    return found


def _built(
    described: Mapping[str, Any], tensors: Mapping[str, Tensor], units: list[type[Unit]]
) -> nn.Module:
    one = described["layers"].get("")
    if one is None or not one["class"]:
        what = ascii(described["model"]) if described["model"] else "a model of another program"
        raise ValueError(f"it holds the weights of {what}: make one, and load(..., model=it)")
    unit = _unit(one["unit"], units)
    layer = _empty(one, unit, len(tensors))
    if layer.unit != unit:
        raise ValueError(f"it has two units, {unit.name} and {layer.unit.name}")
    _require_tensors(layer.state_dict(), tensors)
    _require_equations(layer, one["unit"], "")
    layer.load_state_dict(tensors, assign=True)
    return layer


def _empty(one: Mapping[str, Any], unit: Unit, tensors: int) -> Recurrent | Cell:
    """The layer without memory for its weights: a file may ask for any size."""
    kind = _KINDS[one["kind"]]
    given = {name: _from_json(value) for name, value in one["arguments"].items()}
    if unknown := {*given} - {*_arguments(kind)}:
        raise ValueError(f"{one['kind']} has no argument {min(unknown)!a} in this version")
    layers = given.get("num_layers", 1)
    if isinstance(layers, int) and layers > max(tensors, _MOST_LAYERS):
        raise ValueError(f"it has {tensors} tensors for {layers} layers")
    dtype = tensor_files.DTYPES[one["dtype"]]
    given |= {"device": "meta", "dtype": dtype}
    named = (LAYERS if kind is Recurrent else CELLS).get(one["named"])
    if one["class"] == "named" and named is not None and _is_ours(type(unit)):
        return named(**(unit.options() | given))
    if one["class"] == "torch" and _is_ours(type(unit)):
        made = RNN if kind is Recurrent else RNNCell
        return made(**given, nonlinearity="tanh" if unit.name == "simple" else "relu")
    return kind(unit, **given)


def _unit(reference: Mapping[str, Any], units: list[type[Unit]]) -> Unit:
    """The unit that is meant, if it is one of the library's or defined in this program."""
    name = reference["name"]
    if "qualname" not in reference:
        known = type(UNITS[name]) if name in UNITS else None
        kinds = [kind for kind in _defined(Unit) if kind.__name__ == name or kind is known]
        kinds = [kind for kind in kinds if _is_ours(kind)]
        if not kinds:
            raise ValueError(f"this version of onegate has no unit {name!a}")
    else:
        kinds = [kind for kind in units if kind.__qualname__ == reference["qualname"]]
        kinds = kinds or [kind for kind in _defined(Unit) if _is_meant(kind, reference)]
    if not kinds:
        raise ValueError(
            f"unit {name!a} is {_told(reference)}, which is not defined here: import or run "
            "where it is defined, or pass load(..., units=[its class])"
        )
    if unknown := {*reference["options"]} - {field.name for field in fields(kinds[-1])}:
        raise ValueError(f"unit {name!a} has no option {min(unknown)!a}")
    return kinds[-1](**_from_json(reference["options"]))


def _told(reference: Mapping[str, Any]) -> str:
    if "qualname" not in reference:
        return ascii(reference["name"])
    where = f"{reference.get('module')}.{reference['qualname']}"
    if "file" in reference:
        where += f" of the file {reference['file']}, SHA-256 {reference.get('sha256', '')[:12]}"
    return ascii(where)


def _defined(kind: type[Unit]) -> Iterator[type[Unit]]:
    """All units of the program, the one defined last at the end."""
    for one in kind.__subclasses__():
        yield one
        yield from _defined(one)


def _is_meant(kind: type[Unit], reference: Mapping[str, Any]) -> bool:
    if kind.__qualname__ != reference["qualname"]:
        return False
    same_file = "sha256" in reference and _file(kind).get("sha256") == reference["sha256"]
    return kind.__module__ == reference.get("module") or same_file


# What must agree.


def _require_tensors(own: Mapping[str, Tensor], found: Mapping[str, Tensor]) -> None:
    """Refuses a file whose tensors are not those of the model, by name, shape and dtype."""
    if missing := [name for name in own if name not in found]:
        raise ValueError(f"it has no tensor {missing[0]!r}, which the model has")
    if further := [name for name in found if name not in own]:
        raise ValueError(f"the model has no tensor {further[0]!a}, which the file has")
    for name, tensor in own.items():
        here, there = _form(tensor), _form(found[name])
        if here != there:
            raise ValueError(f"{name} is {there} in the file and {here} in the model")


def _form(tensor: Tensor) -> str:
    return f"{str(tensor.dtype).removeprefix('torch.')} {tuple(tensor.shape)}"


def _require_same_layers(model: nn.Module, described: Mapping[str, Any]) -> None:
    """Refuses weights of other units, or of layers that compute something else with them."""
    own = dict(_layers(model))
    for name, one in described["layers"].items():
        if name not in own:
            raise ValueError(f"its layer {name!a} is no layer of onegate in the model")
        _require_equations(own[name], one["unit"], f" in {name or 'the model'}")
        for argument, value in one["arguments"].items():
            here = getattr(own[name], argument, None)
            if argument not in _FREE and _from_json(value) != here:
                what = f"{value!a} in the file, {here!r} in the model"
                raise ValueError(f"{argument} of {name or 'the layer'} is {what}")


def _require_equations(layer: Recurrent | Cell, reference: Mapping[str, Any], where: str) -> None:
    if equations(_first(layer).graph) != reference["equations"]:
        raise ValueError(
            f"its weights are those of {_told(reference)}, and the equations of "
            f"{layer.unit.name}{where} are others, or have changed since; "
            "onegate.tensor_files.read(path) gives the weights alone"
        )


def safe_globals() -> list[Any]:
    """The classes of layers, cells and accelerated modules, and those inside.

    For whole modules in `torch.load(weights_only=True)`.

    >>> torch.serialization.add_safe_globals(onegate.safe_globals())
    """
    accelerated = [
        *(drop_in.GRU, drop_in.LSTM, drop_in.RNN),
        *(drop_in.GRUCell, drop_in.LSTMCell, drop_in.RNNCell),
    ]
    units = {type(unit): None for unit in (*UNITS.values(), LSTMProjected())}
    layers = (Recurrent, RNN, *LAYERS.values())
    return [Weights, Map, *layers, Cell, RNNCell, *CELLS.values(), *units, *accelerated]
