"""Native programs by the keys under which the fused engine's operators name them."""

from __future__ import annotations

import functools
import json
from dataclasses import dataclass

from onegate.engines.cpu.native import NativeProgram
from onegate.language import Graph
from onegate.lowering.program import program
from onegate.tracing import trace
from onegate.units import UNITS, get


@dataclass(frozen=True)
class Entry:
    """A program and what its callers need to know of it.

    per_row: how many numbers are kept for each step and row; size: of the output.
    width: of all states; shapes: of the parameters.
    """

    graph: Graph
    native: NativeProgram
    per_row: int
    size: int
    width: int
    shapes: tuple[tuple[int, ...], ...]

    @classmethod
    def of(cls, graph: Graph) -> Entry:
        """Makes the program of `graph`."""
        native = NativeProgram.of(program(graph))
        sizes = [state.size or 0 for state in graph.states]
        shapes = tuple(graph.parameters.values())
        return cls(graph, native, native.kept_size(1, 1, 1), sizes[0], sum(sizes), shapes)


# A key of a registered unit can be resolved in any process (an exported model names it); that of
# any other unit only where it was made.
_ENTRIES: dict[str, Entry] = {}


@functools.lru_cache(maxsize=1024)
def key_of(graph: Graph) -> str:
    """The key of the program of `graph`, which is made if there is none yet."""
    unit = graph.unit
    named = {
        "unit": unit.name,
        "options": unit.options(),
        "input_size": graph.input_size,
        "hidden_size": graph.hidden_size,
        "bias": graph.bias,
    }
    if type(UNITS.get(unit.name)) is not type(unit):
        named["process"] = id(type(unit))
    try:
        key = json.dumps(named)
    except TypeError:  # an option that is no plain data names nothing in another process
        key = json.dumps({**named, "options": repr(unit.options()), "process": id(unit)})
    if key not in _ENTRIES:
        _ENTRIES[key] = Entry.of(graph)
    return key


def find(key: str) -> Entry:
    """What `key` names, made anew if this process has not made it."""
    entry = _ENTRIES.get(key)
    if entry is None:
        named = json.loads(key)
        if "process" in named:
            raise RuntimeError(
                f"the unit {named['unit']!r} is not registered and was defined in another "
                "process: register it (onegate.register) before saving and before loading"
            )
        unit = get(named["unit"], **named["options"])
        graph = trace(unit, named["input_size"], named["hidden_size"], named["bias"])
        entry = _ENTRIES[key] = Entry.of(graph)
    return entry
