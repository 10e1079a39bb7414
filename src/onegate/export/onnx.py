"""Layers as ONNX: a standard operator where the equations match, Scan or one step elsewhere.

`onegate.export(layer, "m.onnx")` writes a file; `onnx_table` is for `torch.onnx.export` of whole
models. Lengths and batches are dynamic in both.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final, TypeAlias

import numpy as np
import torch
from numpy.typing import NDArray
from torch import nn

from onegate import files
from onegate.export.deployable import plain, refuse_modules, zoneout_of
from onegate.export.onnx_operators import (
    ACTIVATIONS,
    Linear,
    Operator,
    is_rest,
    mixes,
    operator,
)
from onegate.extras import need
from onegate.language import Graph, UnitError, Value, of_graph
from onegate.lowering.stages import MapProduct, Projection, Stages, stages
from onegate.ops import OPERATIONS

OPSET: Final = 18
FORMS: Final = ("auto", "op", "scan", "step")
Array: TypeAlias = NDArray[Any]
Parameters: TypeAlias = Mapping[str, Any]  # an array, or a value of the ONNX graph
_prefixes = itertools.count()


class Nodes:
    """Adds nodes to an ONNX graph; what is known as a NumPy array stays one until it is used.

    record: adds a node (type, inputs, attributes, outputs) and returns its values.
    """

    def __init__(self, dtype: Any, record: Callable[..., Sequence[Any]] | None = None) -> None:
        import onnx_ir as ir

        self.ir, self.dtype = ir, np.dtype(dtype)
        self.nodes: list[Any] = []
        self.weights: dict[int, tuple[Array, Any]] = {}  # by id; the array is held
        self.prefix, self._count = f"onegate{next(_prefixes)}", itertools.count()
        self._record = record or self._add

    def __call__(self, op: str, *inputs: Any, outputs: int = 1, **attributes: Any) -> Any:
        """The value of a new node, or a list of several."""
        values = [self.value(v) for v in inputs]
        made = self._record(op, values, attributes, outputs)
        return made[0] if outputs == 1 else list(made)

    def value(self, v: Any) -> Any:
        """`v` itself, or the weight that an array or a number is."""
        if isinstance(v, (int, float)):
            v = np.asarray(v, self.dtype)
        if not isinstance(v, np.ndarray):
            return v
        if id(v) not in self.weights:
            self.weights[id(v)] = v, self.weight(v)
        return self.weights[id(v)][1]

    def weight(self, array: Array) -> Any:
        return self("Constant", value=self.ir.tensor(array))

    def name(self) -> str:
        return f"{self.prefix}_{next(self._count)}"

    def _add(self, op: str, inputs: list[Any], attributes: dict[str, Any], outputs: int) -> Any:
        made = [self.ir.Value(name=self.name()) for _ in range(outputs)]
        self.nodes.append(self.ir.node(op, inputs, attributes, outputs=made))
        return made

    def parts(self, v: Any, sizes: Sequence[int], axis: int) -> list[Any]:
        """A value cut along an axis."""
        if len(sizes) == 1:
            return [v]
        if self._record == self._add:
            return list(self("Split", v, np.array(sizes), outputs=len(sizes), axis=axis))
        # torch's exporter wants Split to have equal parts.
        ends, along = np.cumsum([0, *sizes]), np.array([axis])
        return [
            self("Slice", v, a, b, along)
            for a, b in zip(ends[:-1, None], ends[1:, None], strict=True)
        ]

    # Of weights: computed here where they are known.
    def negative(self, v: Any) -> Any:
        return -v if isinstance(v, np.ndarray) else self("Neg", v)

    def transposed(self, v: Any) -> Any:
        known = isinstance(v, np.ndarray)
        return np.ascontiguousarray(v.T) if known else self("Transpose", v, perm=[1, 0])

    def total(self, terms: Sequence[Any]) -> Any:
        if all(isinstance(v, np.ndarray) for v in terms):
            return sum(terms[1:], terms[0])
        total = terms[0]
        for term in terms[1:]:
            total = self("Add", total, term)
        return total

    def joined(self, parts: Sequence[Any], axis: int = 0) -> Any:
        if len(parts) == 1:
            return parts[0]
        if all(isinstance(v, np.ndarray) for v in parts):
            return np.concatenate(parts, axis)
        return self("Concat", *parts, axis=axis)

    def whole(self, blocks: Any, heads: int, rows: int, columns: int) -> Any:
        """Blocks (heads, rows, columns) as a matrix with them on its diagonal."""
        mask = np.eye(heads, dtype=self.dtype)[:, None, :, None]
        wide = self("Reshape", blocks, np.array([heads, rows, 1, columns]))
        return self("Reshape", self("Mul", wide, mask), np.array([heads * rows, heads * columns]))

    def stacked(self, parts: Sequence[Any]) -> Any:
        """Parts along a new first axis."""
        if all(isinstance(v, np.ndarray) for v in parts):
            return np.stack(parts)
        return self.joined([self("Unsqueeze", v, np.array([0])) for v in parts])


class _FileNodes(Nodes):
    """Nodes of a file of their own: weights are initializers."""

    def weight(self, array: Array) -> Any:
        kind = self.ir.TensorType(self.ir.DataType.from_numpy(array.dtype))
        name = self.name()
        return self.ir.Value(
            name=name,
            shape=self.ir.Shape(array.shape),
            type=kind,
            const_value=self.ir.tensor(array, name=name),
        )


class _BodyNodes(Nodes):
    """Nodes of a loop's body; what is known lies outside."""

    def __init__(self, outer: Nodes) -> None:
        super().__init__(outer.dtype)
        self.outer = outer

    def value(self, v: Any) -> Any:
        return self.outer.value(v)


@dataclass
class OnnxPass:
    """One direction of a layer. start: the states before it, each (B, size), or a known (size,)."""

    parameters: Parameters
    start: Sequence[Any]

    def starts(self, add: Nodes, x: Any) -> list[Any]:
        """Each (B, size); x: (T, B, d)."""
        if not any(isinstance(v, np.ndarray) for v in self.start):
            return list(self.start)
        batch = add("Shape", x, start=1, end=2)
        return [
            add("Expand", v, add("Concat", batch, np.array([v.size]), axis=0))
            if isinstance(v, np.ndarray)
            else v
            for v in self.start
        ]


# --- A layer as a standard operator -----------------------------------------------------------


def _by_operator(
    add: Nodes, graph: Graph, found: Operator, x: Any, passes: Sequence[OnnxPass], lengths: Any
) -> tuple[Any, list[list[Any]]]:
    """As `_layer`."""
    W, R, B = (
        add.stacked([each(add, graph, found, p.parameters) for p in passes])
        for each in (_given, _recurrent, _biases)
    )
    known = [v for p in passes for v in p.start]
    if any(not isinstance(v, np.ndarray) or v.any() for v in known):
        each = [p.starts(add, x) for p in passes]
        starts = [add.stacked(states) for states in zip(*each, strict=True)]
    else:
        starts = [None] * len(graph.states)  # they begin with zeros by themselves
    lengths = None if lengths is None else add("Cast", lengths, to=6)  # INT32
    inputs = [x, W, R, B, lengths, *starts]
    if found.has_peepholes:
        inputs.append(add.stacked([_peepholes(add, graph, found, p.parameters) for p in passes]))
    out, *lasts = add(
        found.name,
        *inputs,
        outputs=1 + len(starts),
        hidden_size=graph.states[0].size,
        direction="forward" if len(passes) == 1 else "bidirectional",
        **_activations(found, len(passes)),
        **found.attributes,
    )
    split = [_split_first(add, last, len(passes)) for last in lasts]
    return _side_by_side(add, out, len(passes)), [list(d) for d in zip(*split, strict=True)]


def _side_by_side(add: Nodes, out: Any, directions: int) -> Any:
    """(T, D, B, n) -> (T, B, D n)."""
    if directions == 1:
        return add("Squeeze", out, np.array([1]))
    out = add("Transpose", out, perm=[0, 2, 1, 3])
    return add("Reshape", out, np.array([0, 0, -1]))


def _activations(found: Operator, directions: int) -> dict[str, Any]:
    names = [ACTIVATIONS[name] for name in found.activations] * directions
    affine = names.count("Affine")
    parameters = {"activation_alpha": [1.0] * affine, "activation_beta": [0.0] * affine}
    return {"activations": names, **(parameters if affine else {})}


def _matrix(
    add: Nodes, linear: Linear, parameters: Parameters, shape: tuple[int, int], of_input: bool
) -> Any:
    """The sum of its matrices from the input, or from all else."""
    found = [
        _signed(add, sign, parameters[key] if key else np.eye(shape[0], dtype=add.dtype))
        for sign, key, operand in linear.matrices
        if (operand.op == "input") is of_input
    ]
    return add.total(found) if found else np.zeros(shape, add.dtype)


def _signed(add: Nodes, sign: float, v: Any) -> Any:
    return v if sign > 0 else add.negative(v)


def _given(add: Nodes, graph: Graph, found: Operator, parameters: Parameters) -> Any:
    shape = graph.states[0].size or 0, graph.input_size
    return add.joined([_matrix(add, r.given, parameters, shape, True) for r in found.rows])


def _recurrent(add: Nodes, graph: Graph, found: Operator, parameters: Parameters) -> Any:
    n = graph.states[0].size or 0
    return add.joined([_matrix(add, r.recurrent, parameters, (n, n), False) for r in found.rows])


def _biases(add: Nodes, graph: Graph, found: Operator, parameters: Parameters) -> Any:
    n = graph.states[0].size or 0

    def bias(linear: Linear) -> Any:
        known = [np.full(n, linear.number, add.dtype)]
        return add.total(known + [_signed(add, s, parameters[key]) for s, key in linear.biases])

    none = np.zeros(n, add.dtype)
    given = [bias(r.given) for r in found.rows]
    return add.joined(
        given + [none if r.recurrent is r.given else bias(r.recurrent) for r in found.rows]
    )


def _peepholes(add: Nodes, graph: Graph, found: Operator, parameters: Parameters) -> Any:
    none = np.zeros(graph.states[0].size or 0, add.dtype)
    rows = [[_signed(add, s, parameters[k]) for s, k, _ in r.given.scaled] for r in found.rows[:3]]
    return add.joined([add.total([none, *row]) for row in rows])


# --- A layer as Scan, and a step --------------------------------------------------------------


@dataclass
class _Values:
    """What nodes of a unit's graph are in ONNX.

    rows: nodes that have a batch axis; all others are learned, or numbers.
    """

    of: dict[Value, Any]
    rows: set[Value]
    sums: dict[MapProduct, Any] = field(default_factory=dict)
    timed: set[MapProduct] = field(default_factory=set)


def _before(add: Nodes, graph: Graph, inputs: Sequence[Any], parameters: Parameters) -> _Values:
    """All that depends on no state, over all of the axes of the inputs, of which x is the first."""
    values = _Values(dict(zip(graph.inputs, inputs, strict=True)), set(graph.inputs))
    for node in graph.nodes:
        if node.op == "constant":
            values.of[node] = node.number
        elif node.op == "vector":
            values.of[node] = parameters[node.name]
    for stage in stages(graph).before:
        if isinstance(stage, Value):
            _pointwise(add, graph, stage, values)
        else:
            _project(add, stage, values, parameters)
    return values


def _project(add: Nodes, stage: Projection, values: _Values, parameters: Parameters) -> None:
    first = 0
    for product in stage.products:
        own = slice(first, first + len(product.nodes))
        first = own.stop
        terms = []
        if stage.biases:
            terms.append(add.joined([parameters[key] for key in stage.biases[own]]))
        for operand, keys in zip(stage.operands, stage.weights, strict=True):
            matrix = add.transposed(add.joined([parameters[key] for key in keys[own]]))
            terms.append(add("MatMul", values.of[operand], matrix))
        timed = any(operand in values.rows for operand in stage.operands)
        total = add.total(terms[::-1]) if terms else None
        if product.operands:
            values.sums[product] = total
            values.timed |= {product} if timed else set()
        else:
            _share_out(add, product, total, values, timed)


def _share_out(add: Nodes, product: MapProduct, total: Any, values: _Values, rows: bool) -> None:
    parts = add.parts(total, product.sizes, -1)
    values.of.update(zip(product.nodes, parts, strict=True))
    values.rows |= set(product.nodes) if rows else set()


def _pointwise(add: Nodes, graph: Graph, node: Value, values: _Values) -> None:
    if not (spelling := OPERATIONS[node.op].onnx):
        raise UnitError(f"{graph.unit.name}: ONNX has no spelling of {node.op!r}: see onegate.ops")
    operands = [values.of[a] for a in node.args]
    made = add(spelling, *operands) if isinstance(spelling, str) else spelling(add, *operands)
    values.of[node] = made
    values.rows |= {node} if values.rows.intersection(node.args) else set()


@of_graph
def _mixed(graph: Graph) -> tuple[dict[Value, tuple[Value, Value, Value]], set[Value]]:
    """Values g a + (1 - g) b of a step as (g, a, b), and what is computed for them alone.

    As b + g (a - b) they take one node less, and a loop's time goes by the number of its nodes.
    """
    users: dict[Value, list[Value]] = {}
    for node in graph.nodes:
        for operand in node.args:
            users.setdefault(operand, []).append(node)
    for result in graph.results:
        users.setdefault(result, []).append(result)
    step = {stage for stage in stages(graph).step if isinstance(stage, Value)}
    mixed: dict[Value, tuple[Value, Value, Value]] = {}
    products, rests = set[Value](), set[Value]()
    for node in step:
        if node.op != "add" or not step.issuperset(node.args):
            continue
        if any(users[product] != [node] for product in node.args):
            continue
        for gate, a, b in mixes(node):
            rest = [v for product in node.args for v in product.args if is_rest(v, gate)]
            if not rest or rest[0] not in step:
                continue
            mixed[node] = gate, a, b
            products |= {*node.args}
            rests.add(rest[0])
            break
    rests -= {part for parts in mixed.values() for part in parts}
    return mixed, products | {rest for rest in rests if products.issuperset(users[rest])}


def _mix(add: Nodes, node: Value, parts: tuple[Value, Value, Value], values: _Values) -> None:
    gate, a, b = (values.of[part] for part in parts)
    values.of[node] = add("Add", b, add("Mul", gate, add("Sub", a, b)))
    values.rows.add(node)


def _one_step(
    add: Nodes, graph: Graph, values: _Values, states: Sequence[Any], parameters: Parameters
) -> list[Any]:
    """The states after a step, each (B, size)."""
    values.of.update(zip(graph.states, states, strict=True))
    values.rows |= set(graph.states)
    mixed, dropped = _mixed(graph)
    for stage in stages(graph).step:
        if isinstance(stage, Value):
            if stage in mixed:
                _mix(add, stage, mixed[stage], values)
            elif stage not in dropped:
                _pointwise(add, graph, stage, values)
            continue
        total = values.sums[stage]
        for operand, keys in zip(stage.operands, stage.weights, strict=True):
            matrix = add.joined([parameters[key] for key in keys])
            optional = [] if total is None else [total]
            total = add("Gemm", values.of[operand], matrix, *optional, transB=1)
        _share_out(add, stage, total, values, True)
    free = {id(value) for node in add.nodes for value in node.outputs}

    def given_out(result: Value, state: Any) -> Any:
        v = values.of[result]
        if result not in values.rows:  # what is only learned has no rows yet
            return add("Expand", v, add("Shape", state))
        if id(v) not in free:  # nothing is given out twice, or as it came in
            return add("Identity", v)
        free.remove(id(v))
        return v

    return [given_out(r, state) for r, state in zip(graph.results, states, strict=True)]


def _by_scan(
    add: Nodes, graph: Graph, inputs: Sequence[Any], one: OnnxPass, mask: Any, backward: bool
) -> tuple[Any, list[Any]]:
    """Outputs (T, B, n) and last states of one direction."""
    values = _before(add, graph, inputs, one.parameters)
    schedule: Stages = stages(graph)
    over_time: list[Value | MapProduct] = [n for n in schedule.given if n in values.rows]
    over_time += [p for p in schedule.step if isinstance(p, MapProduct) and p in values.timed]
    scanned = [values.of[n] if isinstance(n, Value) else values.sums[n] for n in over_time]
    scanned += [] if mask is None else [mask]
    body = _body(add, graph, values, one.parameters, over_time, mask is not None)
    flags = {"scan_input_directions": [1] * len(scanned), "scan_output_directions": [1]}
    if not scanned:  # a unit that does not see its input: time is all it needs
        scanned, flags["scan_input_directions"] = [inputs[0]], [1]
    last = add(
        "Scan",
        *one.starts(add, inputs[0]),
        *scanned,
        outputs=len(graph.states) + 1,
        body=body,
        num_scan_inputs=len(scanned),
        **(flags if backward else {}),
    )
    return last[-1], last[:-1]


def _body(
    outer: Nodes,
    graph: Graph,
    known: _Values,
    parameters: Parameters,
    over_time: Sequence[Value | MapProduct],
    masked: bool,
) -> Any:
    """One step as the graph that Scan repeats."""
    add = _BodyNodes(outer)
    ir = add.ir
    kind = ir.TensorType(ir.DataType.from_numpy(add.dtype))
    states = [ir.Value(name=add.name(), type=kind) for _ in graph.states]
    given = [ir.Value(name=add.name(), type=kind) for _ in over_time]
    inputs = [*states, *given]
    values = _Values(dict(known.of), set(known.rows), dict(known.sums))
    for node, value in zip(over_time, given, strict=True):
        if isinstance(node, Value):
            values.of[node] = value
        else:
            values.sums[node] = value
    new = _one_step(add, graph, values, states, parameters)
    out = add("Identity", new[0])
    if masked:
        mask = ir.Value(name=add.name(), type=ir.TensorType(ir.DataType.BOOL))
        inputs.append(mask)
        out = add("Where", mask, new[0], 0.0)
        new = [add("Where", mask, n, s) for n, s in zip(new, states, strict=True)]
    if len(inputs) == len(states):
        inputs.append(ir.Value(name=add.name(), type=kind))
    for value in (*new, out):
        value.type = kind
    return ir.Graph(inputs, [*new, out], nodes=add.nodes, name=add.prefix)


def _mask(add: Nodes, x: Any, lengths: Any) -> Any:
    """(T, B, 1): whether a step is one of its row's."""
    steps = add("Squeeze", add("Shape", x, start=0, end=1), np.array([0]))
    time = add("Range", np.array(0), steps, np.array(1))
    inside = add("Less", add("Unsqueeze", time, np.array([1])), lengths)
    return add("Unsqueeze", inside, np.array([2]))


def _layer(
    add: Nodes,
    graph: Graph,
    inputs: Sequence[Any],
    passes: Sequence[OnnxPass],
    lengths: Any,
    form: str,
) -> tuple[Any, list[list[Any]]]:
    """Outputs (T, B, D * n), and by direction the last states, each (B, size)."""
    x = inputs[0]
    (found,) = operator(graph)
    if form == "op" and found is None:
        raise UnitError(
            f"{graph.unit.name} is none of ONNX's GRU, LSTM and RNN: use form='scan' or 'auto'"
        )
    # ONNX Runtime's operators compute in float32 alone.
    if found is not None and (form == "op" or (form == "auto" and add.dtype == np.float32)):
        return _by_operator(add, graph, found, x, passes, lengths)
    mask = None if lengths is None else _mask(add, x, lengths)
    ran = [_by_scan(add, graph, inputs, one, mask, place == 1) for place, one in enumerate(passes)]
    return add.joined([out for out, _ in ran], axis=2), [last for _, last in ran]


def _split_first(add: Nodes, v: Any, count: int) -> list[Any]:
    """The parts of a value along its first axis, which goes."""
    return [add("Squeeze", part, np.array([0])) for part in add.parts(v, [1] * count, 0)]


# --- Files ------------------------------------------------------------------------------------


def export_onnx(
    layer: nn.Module,
    path: str | Path,
    form: str = "auto",
    *,
    lengths: bool = False,
    states: bool = False,
) -> Path:
    """Writes a layer as an ONNX file; dropout is that of evaluation, none.

    form: "op" for a standard operator (GRU, LSTM, RNN) where the equations are one, "scan" for a
        loop over a step, "auto" for the first of them that goes; "step" for one step, with the
        states as inputs and outputs.
    lengths: there is an input "lengths" (B,), int64.
    states: those before the first step are inputs ("h_0", ...); else they are learned, or zero.

    Inputs "input" (T, B, d), or (B, T, d) with batch_first, and by its name what the unit reads
    beside it; outputs "output", and the last states
    "h_n" ..., each (D * layers, B, size). Of a step: "input" (B, d) and "output" (B, n).

    >>> onegate.export(layer, "m.onnx", form="scan")
    """
    need("export to ONNX", "onnx")
    path = Path(path)
    files.require_writable(path)
    if form not in FORMS:
        raise ValueError(f"form is {form!r}, expected one of {', '.join(FORMS)}")
    _check(layer, form, lengths)
    files.write(path, _serialised(layer, form, lengths, states))
    return path


def _check(layer: nn.Module, form: str, lengths: bool) -> None:
    from onegate.nn.cells import Cell
    from onegate.nn.layers import Recurrent

    if not isinstance(layer, (Recurrent, Cell)):
        raise TypeError(
            f"{type(layer).__name__} is no layer of onegate: for whole models use "
            "torch.onnx.export(model, ..., custom_translation_table=onegate.onnx_table())"
        )
    refuse_modules(layer)
    if form == "step" and lengths:
        raise ValueError("lengths=True is for whole sequences; form='step' is one step")
    if form == "step" and getattr(layer, "bidirectional", False):
        raise ValueError("form='step' goes forward in time; a bidirectional layer cannot")
    if isinstance(layer, Cell) and form not in ("auto", "step"):
        raise ValueError(f"a cell is one step: form='step', not {form!r}")


def _weights_of(layer: Any) -> list[list[Any]]:
    found: list[list[Any]] = layer._weights() if hasattr(layer, "_weights") else [[layer]]
    return found


def _array(tensor: torch.Tensor) -> Array:
    if tensor.dtype not in (torch.float32, torch.float64):
        raise ValueError(f"the layer is {tensor.dtype}; for ONNX make it float32: layer.float()")
    made: Array = np.array(tensor.detach().cpu().numpy())
    return made


def _serialised(layer: Any, form: str, lengths: bool, states: bool) -> bytes:
    import onnx_ir as ir

    weights = _weights_of(layer)
    add = _FileNodes(_array(weights[0][0].example()).dtype)
    file = _File(add, layer, weights, [])
    one_step = form == "step" or not hasattr(layer, "_weights")
    outputs = file.step() if one_step else file.sequence(form, lengths, states)
    graph = ir.Graph(
        file.inputs,
        outputs,
        nodes=add.nodes,
        initializers=[v for _, v in add.weights.values()],
        opset_imports={"": OPSET},
        name=layer.unit.name,
    )
    model = ir.Model(graph, ir_version=9, producer_name="onegate")
    proto = ir.serde.serialize_model(model)
    return bytes(proto.SerializeToString())


@dataclass
class _File:
    """A layer as the graph of a file."""

    add: Nodes
    layer: Any
    weights: list[list[Any]]
    inputs: list[Any]

    def input(self, name: str, shape: Sequence[str | int], dtype: Any = None) -> Any:
        ir = self.add.ir
        kind = ir.TensorType(ir.DataType.from_numpy(np.dtype(dtype or self.add.dtype)))
        self.inputs.append(ir.Value(name=name, shape=ir.Shape(shape), type=kind))
        return self.inputs[-1]

    def output(self, name: str, value: Any, shape: Sequence[str | int]) -> Any:
        ir = self.add.ir
        value = self.add("Identity", value)
        value.name, value.shape = name, ir.Shape(shape)
        value.type = ir.TensorType(ir.DataType.from_numpy(self.add.dtype))
        return value

    @property
    def states(self) -> dict[str, int]:
        return {s.name: s.size or 0 for s in self.weights[0][0].graph.states}

    def _further(self, axes: Sequence[str]) -> list[Any]:
        """What the unit reads beside x, in the axes of x."""
        beside = self.weights[0][0].graph.inputs[1:]
        return [self.input(value.name, [*axes, value.size]) for value in beside]

    def step(self) -> list[Any]:
        x = self.input("input", ["B", self.layer.input_size])
        further, zoneout = self._further(["B"]), zoneout_of(self.layer)
        rows = len(self.weights)
        before = {
            name: _split_first(self.add, self.input(f"{name}_0", [rows, "B", size]), rows)
            for name, size in self.states.items()
        }
        after: list[list[Any]] = []
        for place, (one,) in enumerate(self.weights):
            graph, tensors = plain(one, zoneout)
            parameters = {key: _array(t) for key, t in tensors.items()}
            values = _before(self.add, graph, (x, *further), parameters)
            start = [before[name][place] for name in self.states]
            after.append(_one_step(self.add, graph, values, start, parameters))
            x = after[-1][0]
        return self._outputs(x, ["B"], after)

    def sequence(self, form: str, lengths: bool, states: bool) -> list[Any]:
        first = getattr(self.layer, "batch_first", False)
        axes = ["B", "T"] if first else ["T", "B"]
        x = self.input("input", [*axes, self.layer.input_size])
        further, zoneout = self._further(axes), zoneout_of(self.layer)
        counts = self.input("lengths", ["B"], np.int64) if lengths else None
        if first:
            x, *further = (self.add("Transpose", v, perm=[1, 0, 2]) for v in (x, *further))
        starts = iter(self._starts(states))
        after: list[list[Any]] = []
        for directions in self.weights:
            passes = [
                OnnxPass({k: _array(t) for k, t in plain(one, zoneout)[1].items()}, next(starts))
                for one in directions
            ]
            graph, _ = plain(directions[0], zoneout)
            x, lasts = _layer(self.add, graph, (x, *further), passes, counts, form)
            after += lasts
        x = self.add("Transpose", x, perm=[1, 0, 2]) if first else x
        return self._outputs(x, axes, after)

    def _starts(self, given: bool) -> list[list[Any]]:
        """By layer and direction: inputs (B, size), or what is learned or zero (size,)."""
        flat = [one for directions in self.weights for one in directions]
        if given:
            rows = len(flat)
            split = [
                _split_first(self.add, self.input(f"{name}_0", [rows, "B", size]), rows)
                for name, size in self.states.items()
            ]
            return [list(each) for each in zip(*split, strict=True)]
        return [
            [_array(state) for state in one.initial_states()]
            or [np.zeros(n, self.add.dtype) for n in self.states.values()]
            for one in flat
        ]

    def _outputs(self, out: Any, axes: list[str], after: list[list[Any]]) -> list[Any]:
        width = (2 if getattr(self.layer, "bidirectional", False) else 1) * next(
            iter(self.states.values())
        )
        found = [self.output("output", out, [*axes, width])]
        for (name, size), parts in zip(self.states.items(), zip(*after, strict=True), strict=True):
            found.append(self.output(f"{name}_n", self.add.stacked(parts), [len(after), "B", size]))
        return found


# --- Whole models, through torch's exporter ---------------------------------------------------


def onnx_table(form: str = "auto") -> dict[Any, Callable[..., Any]]:
    """How `torch.onnx.export` writes onegate's layers inside a model.

    >>> torch.onnx.export(model, (x,), "m.onnx", dynamo=True,
    ...                   custom_translation_table=onegate.onnx_table())
    """
    need("export to ONNX", "onnx")
    if form not in FORMS[:3]:
        raise ValueError(f"form is {form!r}, expected one of {', '.join(FORMS[:3])}")

    def forward(
        x: Any,
        start: Any,
        parameters: Any,
        lengths: Any,
        program: str,
        keep: bool,
        reset: Any = None,
        all_states: bool = False,
        recompute: bool = False,
    ) -> tuple[Any, Any, Any]:
        del keep, recompute  # for a backward pass, which a file has not
        if reset is not None or all_states:
            raise UnitError("a call with reset= or return_states=True has no form in ONNX")
        return _translated(x, start, parameters, lengths, program, form)

    return {torch.ops.onegate.forward.default: forward}


def _translated(
    x: Any, start: Any, parameters: Sequence[Any], lengths: Any, program: str, form: str
) -> tuple[Any, Any, Any]:
    from onegate.engines.cpu.programs import find

    graph = find(program).graph
    if graph is None:
        raise UnitError(
            "a recorded model has its unit's program alone, and ONNX needs the equations: import "
            "and register the unit (onegate.register) first"
        )
    add = Nodes(x.dtype.numpy(), _by_torch)
    count = len(graph.parameters)
    sizes = [s.size or 0 for s in graph.states]
    further = parameters[len(parameters) - len(graph.inputs) + 1 :]
    directions = (len(parameters) - len(further)) // count if count else start.shape[0]
    passes = []
    for place, rows in enumerate(_split_first(add, start, directions)):
        own = parameters[place * count : (place + 1) * count]
        matrices = {
            key: add.whole(v, *shape) if len(shape) > 2 else v
            for (key, shape), v in zip(graph.parameters.items(), own, strict=True)
        }
        passes.append(OnnxPass(matrices, add.parts(rows, sizes, -1)))
    out, lasts = _layer(add, graph, (x, *further), passes, lengths, form)
    last = add.stacked([add.joined(states, axis=1) for states in lasts])
    return out, last, add("Constant", value=add.ir.tensor(np.zeros(0, add.dtype)))


def _by_torch(op: str, inputs: list[Any], attributes: dict[str, Any], outputs: int) -> Any:
    """A node through onnxscript, which torch's exporter listens to."""
    import onnxscript

    opset = getattr(onnxscript, f"opset{OPSET}")
    made = getattr(opset, op)(*inputs, **attributes)
    node = (made if not isinstance(made, Iterable) else next(iter(made))).producer()
    if len(node.outputs) != outputs:
        node.resize_outputs(outputs)
    return node.outputs
