"""Native programs by the keys under which the fused engine's operators name them."""

from __future__ import annotations

import functools
import json
import os
import weakref
from dataclasses import dataclass

from onegate.engines.cpu.native import NativeProgram
from onegate.language import Graph, of_graph
from onegate.lowering.program import program
from onegate.tracing import trace
from onegate.units import UNITS, get


@dataclass(frozen=True, eq=False)
class Entry:
    """A program and what its callers need to know of it.

    per_row: how many numbers are kept for each step and row; size: of the output.
    width: of all states; shapes: of the parameters.
    """

    key: str
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
        kept = native.kept_size(1, 1, 1)
        return cls(_key(graph), graph, native, kept, sizes[0], sum(sizes), shapes)


# An entry lives in its graph, and so as long as a layer or a backward pass that needs it.
_ENTRIES: weakref.WeakValueDictionary[str, Entry] = weakref.WeakValueDictionary()
_LASTING: dict[str, Entry] = {}


@of_graph
def entry_of(graph: Graph) -> Entry:
    """The program of `graph`, which is made if there is none yet."""
    entry = Entry.of(graph)
    _ENTRIES[entry.key] = entry
    return entry


def key_of(graph: Graph) -> str:
    """The key of the program of `graph`."""
    return entry_of(graph).key


def lasting_key_of(graph: Graph) -> str:
    """The same for a recorded call (compiled, traced, exported), which outlives its layer.

    What only this process can find under the key is kept for ever.
    """
    entry = entry_of(graph)
    if "process" in json.loads(entry.key):
        _LASTING[entry.key] = entry
    return entry.key


def find(key: str) -> Entry:
    """What `key` names, made anew if this process has not made it."""
    return _ENTRIES.get(key) or _made_anew(key)


@functools.lru_cache(maxsize=128)  # nobody else holds what an exported model runs
def _made_anew(key: str) -> Entry:
    named = json.loads(key)
    if "process" in named:
        raise RuntimeError(
            f"the unit {named['unit']!r} is not registered and was defined in another process, "
            "or is gone: register it (onegate.register) before saving and before loading"
        )
    unit = get(named["unit"], **named["options"])
    return entry_of(trace(unit, named["input_size"], named["hidden_size"], named["bias"]))


def _key(graph: Graph) -> str:
    """That of a registered unit says how to make it anew, in any process."""
    unit = graph.unit
    named = {
        "unit": unit.name,
        "options": unit.options(),
        "input_size": graph.input_size,
        "hidden_size": graph.hidden_size,
        "bias": graph.bias,
    }
    process = {"process": os.urandom(8).hex()}  # like no other key, here or elsewhere
    if type(UNITS.get(unit.name)) is not type(unit):
        named |= process
    try:
        return json.dumps(named)
    except TypeError:  # an option that is no plain data names nothing in another process
        return json.dumps({**named, "options": repr(unit.options()), **process})
