"""The API page, made from `onegate.__all__` when the pages are made."""

import re

import onegate
from onegate import ops
from onegate.nn.named import CELLS, LAYERS

# The API page: every public name in one of its parts. The layers of units make one of their own.
API = {
    "Layers of any unit": ["Recurrent", "Cell", "RNN", "RNNCell"],
    "The language of units": [
        *("Unit", "Affine", "Diagonal", "Fit", "LayerNorm", "RMSNorm", "Vector", "UnitError"),
        *("register", "UNITS", "trace", "Graph"),
    ],
    "torch's layers, faster and converted": [
        *("accelerate", "accelerated", "restore", "engine_report", "drop_in"),
        *("from_torch", "to_torch"),
    ],
    "Saving, exporting, streaming": [
        *("save", "load", "safe_globals", "export", "onnx_table", "stream", "Stream"),
    ],
    "Looking inside": ["probe"],
    "Initial values": ["forget_bias", "chrono"],
    "Engines": ["Choice", "EngineError"],
}
# How autodoc takes a name; by default a class or a function as it is.
SHOWN = {
    "Recurrent": ".. autoclass:: onegate.Recurrent\n   :members: forward, engine_report, run_by",
    "Cell": ".. autoclass:: onegate.Cell\n   :members: forward, engine_report",
    "Unit": ".. autoclass:: onegate.Unit\n   :members:",
    "Graph": ".. autoclass:: onegate.Graph\n   :members:",
    "Stream": ".. autoclass:: onegate.Stream\n   :members:",
    "UNITS": ".. py:data:: onegate.UNITS\n\n   The registry: a unit by its name.",
    "export": ".. autofunction:: onegate.export.targets.export",
    "drop_in": ".. automodule:: onegate.nn.drop_in",
    "probe": ".. automodule:: onegate.probe\n   :members:\n   :imported-members:",
    "chrono": ".. autofunction:: onegate.chrono\n\n.. automodule:: onegate.nn.init",
}
# What is public beside `onegate.__all__`, by its module.
FURTHER = {
    "Engines, files and the laboratory from Python": [
        *("function:onegate.engines.register", "function:onegate.engines.names"),
        *("function:onegate.tensor_files.read", "function:onegate.tensor_files.write"),
        *("function:onegate.lab.recipes.recipe", "function:onegate.lab.recipes.override"),
        *("function:onegate.lab.train.session.train", "function:onegate.lab.archive.finished_runs"),
        *("class:onegate.lab.compare.Request", "function:onegate.lab.compare.compare"),
        *("function:onegate.lab.report.write", "function:onegate.lab.inside.writing.write"),
        *("class:onegate.lab.tasks.Task", "function:onegate.lab.tasks.register"),
        *("function:onegate.lab.plugins.load", "module:onegate.lab.data.stand_ins"),
    ],
}


def api_page() -> str:
    """The page, as MyST; a public name that it would not show is an error."""
    named = {kind.__name__: unit for unit, kind in LAYERS.items()}
    cells = {kind.__name__ for kind in CELLS.values()}
    placed = {name for names in API.values() for name in names}
    if missing := {*onegate.__all__} - placed - {*named} - cells - {*ops.__all__}:
        raise ValueError(f"docs/api_page.py has no place for {sorted(missing)} on the API page")
    parts = ["# API", "Names without a module are `onegate.` and the name."]
    for title, names in API.items():
        parts += [f"## {title}", _rst("\n\n".join(_directive(name) for name in names))]
    for title, names in FURTHER.items():
        parts += [
            f"## {title}",
            "These are named with their modules; `onegate[lab]` brings those of `onegate.lab`.",
        ]
        parts += [_rst("\n\n".join(_further(*name.split(":")) for name in names))]
    parts += ["## Operations of the language", "Element by element.", _operations()]
    parts += ["## Layers and cells of the registered units"]
    parts += ["Each is `Recurrent` or `Cell` of its unit; `onegate units` lists them, too."]
    rows = [f"| `{name}` | `{name}Cell` | `{unit}` |" for name, unit in sorted(named.items())]
    parts += ["\n".join(["| layer | cell | unit |", "| --- | --- | --- |", *rows])]
    parts += [_rst("\n\n".join(f".. autoclass:: onegate.{name}" for name in sorted(named)))]
    return "\n\n".join(parts)


def _directive(name: str) -> str:
    kind = "class" if isinstance(getattr(onegate, name), type) else "function"
    return SHOWN.get(name, f".. auto{kind}:: onegate.{name}")


def _further(kind: str, name: str) -> str:
    more = "\n   :members: digits, manual, documentation" if kind == "module" else ""
    return f".. auto{kind}:: {name}{more}"


def _rst(text: str) -> str:
    return f"```{{eval-rst}}\n{text}\n```"


def _operations() -> str:
    rows = ["| name | written |", "| --- | --- |"]
    for name in ops.__all__:
        row = ops.OPERATIONS.get(name)
        written = re.sub(r":\w+}", "}", row.latex).format("a", "b") if row else "a"
        rows.append(f"| `{name}` | ${written}$ |".replace("|b|", "b"))
    return "\n".join(rows)
