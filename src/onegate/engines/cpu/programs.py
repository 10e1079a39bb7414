"""Native programs by the keys under which the fused engine's operators name them.

A key holds the whole program, so that a recorded call (compiled, traced, exported) runs wherever
onegate is, also for a unit that is known only where it was written.
"""

from __future__ import annotations

import functools
import json
import weakref
from dataclasses import dataclass
from typing import Any

from onegate.engines.cpu.native import NativeProgram
from onegate.language import Graph, UnitError, of_graph
from onegate.lowering.masks import masked
from onegate.lowering.program import program
from onegate.lowering.spec import Program, upgraded
from onegate.tracing import trace
from onegate.units import get


@dataclass(frozen=True, eq=False)
class Entry:
    """A program and what its callers need to know of it.

    name: of the unit. graph: its equations, None where they are not known. per_row: how many
    numbers are kept for each step and row; size: of the output; width: of all states. learned: the
    inputs after x that have gradients, masks having none.
    """

    key: str
    name: str
    graph: Graph | None
    program: Program
    native: NativeProgram
    per_row: int
    size: int
    width: int
    learned: tuple[bool, ...]

    @classmethod
    def of(cls, key: str, name: str, graph: Graph | None, made: Program) -> Entry:
        """An entry with its native program."""
        native, states = NativeProgram.of(made), made.states
        kept = native.kept_size(1, 1, 1)
        slots = made.backward.slots
        found = {s.index for s in slots if s.space == "grad_input"}
        operands = (slots[slot] for each in made.maps for slot, _ in each.operands)
        found |= {s.index for s in operands if s.space == "input"}
        learned = tuple(i in found for i in range(1, len(made.inputs)))
        return cls(key, name, graph, made, native, kept, states[0], sum(states), learned)


# An entry lives in its graph, and so as long as a layer or a backward pass that needs it.
_ENTRIES: weakref.WeakValueDictionary[str, Entry] = weakref.WeakValueDictionary()


@of_graph
def entry_of(graph: Graph) -> Entry:
    """The program of `graph`, which is made if there is none yet."""
    made = program(graph)
    entry = Entry.of(_key(graph, made), graph.unit.name, graph, made)
    _ENTRIES[entry.key] = entry
    return entry


def key_of(graph: Graph) -> str:
    """The key of the program of `graph`."""
    return entry_of(graph).key


def find(key: str) -> Entry:
    """What `key` names, made anew if this process has not made it."""
    return _ENTRIES.get(key) or _made_anew(key)


@functools.lru_cache(maxsize=128)  # nobody else holds what an exported model runs
def _made_anew(key: str) -> Entry:
    named = json.loads(key)
    if "program" not in named:  # a key of versions that named the unit alone
        return _of_older_version(named)
    made = Program.decode(upgraded(named["program"]), named["constants"])
    graph = _known_graph(named)
    if graph is not None and program(graph) != made:
        graph = None  # another unit of that name
    return Entry.of(key, named["unit"], graph, made)


def _of_older_version(named: dict[str, Any]) -> Entry:
    graph = _known_graph(named)
    if graph is None:
        raise RuntimeError(
            f"the unit {named['unit']!r} is not registered here, and the model was recorded by a "
            "version of onegate that did not keep its program: register the unit (onegate.register)"
        )
    return entry_of(graph)


def _known_graph(named: dict[str, Any]) -> Graph | None:
    """The equations that a key names, where the registry has such a unit."""
    try:
        unit = get(named["unit"], **named["options"])
        graph = trace(unit, named["input_size"], named["hidden_size"], named["bias"])
        return masked(graph, tuple(named.get("masks", ())))
    except (UnitError, TypeError):
        return None


def _key(graph: Graph, made: Program) -> str:
    unit = graph.unit
    named = {
        "unit": unit.name,
        "options": unit.options(),
        "input_size": graph.input_size,
        "hidden_size": graph.hidden_size,
        "bias": graph.bias,
        "masks": graph.masks,
        "program": made.encode(),
        "constants": made.constants,
    }
    # An option that is no plain data names nothing in another process; the program does.
    return json.dumps(named, separators=(",", ":"), default=repr)
