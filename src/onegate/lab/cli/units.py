"""`onegate units`: the registry as a table, one unit in detail, LaTeX, JSON or step program."""

from __future__ import annotations

import argparse
import json
from dataclasses import asdict
from typing import Any

from rich import box
from rich.table import Table
from rich.text import Text

from onegate.export.latex import equations, latex
from onegate.lab.cli import options
from onegate.language import Graph
from onegate.lowering.program import program
from onegate.properties import gates, retention
from onegate.tracing import trace
from onegate.units import UNITS, get

_MORE_OR_LESS = {1: "more", -1: "less"}


def register(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "name", nargs="?", type=options.unit, help="one unit, in detail: a name, or FILE.py:Class"
    )
    options.add_plugins(parser)
    parser.add_argument("--input-size", type=_size, default=28, help="default: %(default)s")
    parser.add_argument("--hidden-size", type=_size, default=100, help="default: %(default)s")
    form = parser.add_mutually_exclusive_group()
    form.add_argument("--latex", action="store_true", help="print the equations in LaTeX")
    form.add_argument("--json", action="store_true", help="print everything as JSON")
    form.add_argument(
        "--program", action="store_true", help="print the forward and backward stages of a step"
    )
    parser.set_defaults(run=run)


def run(args: argparse.Namespace) -> int:
    """Prints what was asked for."""
    names = [args.name] if args.name else list(UNITS)
    graphs = [trace(get(name), args.input_size, args.hidden_size) for name in names]
    if args.latex:
        print("\n\n".join(_latex(graph, titled=not args.name) for graph in graphs))
    elif args.program:
        print("\n\n".join(_program(graph, titled=not args.name) for graph in graphs))
    elif args.json:
        described = [_described(graph) for graph in graphs]
        print(json.dumps(described[0] if args.name else described, indent=2, ensure_ascii=False))
    elif args.name:
        _print_details(graphs[0])
    else:
        _print_table(graphs)
    return 0


def _size(text: str) -> int:
    if not text.isdecimal() or int(text) < 1:
        raise argparse.ArgumentTypeError(f"a size is a whole number from 1 up, got {text!r}")
    return int(text)


def _latex(graph: Graph, titled: bool) -> str:
    return f"% {graph.unit.name}: {graph.unit.title}\n{latex(graph)}" if titled else latex(graph)


def _program(graph: Graph, titled: bool) -> str:
    stages = program(graph).describe()
    return f"{graph.unit.name}: {graph.unit.title}\n{stages}" if titled else stages


def _described(graph: Graph) -> dict[str, Any]:
    unit = graph.unit
    return {
        "name": unit.name,
        "title": unit.title,
        "citation": unit.citation,
        "options": unit.options(),
        "states": {state.name: state.size for state in graph.states},
        "gates": [graph.names.get(gate, "") for gate in gates(graph)],
        "retention": [asdict(kept) for kept in retention(graph)],
        "equations": equations(graph),
        "latex": latex(graph),
        "input_size": graph.input_size,
        "hidden_size": graph.hidden_size,
        "parameters": {key: list(shape) for key, shape in graph.parameters.items()},
        "parameter_count": graph.parameter_count(),
    }


def _print_table(graphs: list[Graph]) -> None:
    first = graphs[0]
    table = Table(
        box=box.SIMPLE,
        show_lines=True,
        caption=f"parameters: one layer, input {first.input_size}, hidden {first.hidden_size}",
    )
    for column in ("unit", "equations", "states", "gates", "parameters", "citation"):
        right = column in ("gates", "parameters")
        table.add_column(column, justify="right" if right else "left", no_wrap=column == "unit")
    for graph in graphs:
        table.add_row(
            Text(graph.unit.name, style="bold"),
            Text("\n".join(equations(graph))),
            ", ".join(graph.unit.states),
            str(len(gates(graph))),
            f"{graph.parameter_count():,}",
            Text(graph.unit.citation),
        )
    options.console().print(table)


def _print_details(graph: Graph) -> None:
    unit = graph.unit
    table = Table(box=None, show_header=False, padding=(0, 2))
    table.add_column(style="bold", no_wrap=True)
    table.add_column()
    rows = {
        "unit": f"{unit.name}: {unit.title}",
        "citation": unit.citation,
        "equations": "\n".join(equations(graph)),
        "states": ", ".join(f"{state.name} ({state.size})" for state in graph.states),
        "gates": ", ".join(graph.names.get(gate, "(no name)") for gate in gates(graph)) or "none",
        "kept": "\n".join(_kept(graph)) or "no gate",
        "options": ", ".join(f"{key}={value}" for key, value in unit.options().items()) or "none",
        "parameters": "\n".join(
            f"{key} {' x '.join(map(str, shape))}" for key, shape in graph.parameters.items()
        ),
        "count": f"{graph.parameter_count():,} "
        f"(one layer, input {graph.input_size}, hidden {graph.hidden_size})",
    }
    for key, text in rows.items():
        table.add_row(key, Text(text))
    options.console().print(table)


def _kept(graph: Graph) -> list[str]:
    """One line for each state that a gate keeps."""
    return [
        f"{kept.state} by {kept.gate}: "
        + (
            f"a larger {kept.keeps.key} keeps {_MORE_OR_LESS[kept.keeps.sign]}"
            if kept.keeps.key
            else "no bias"
        )
        for kept in retention(graph)
    ]
