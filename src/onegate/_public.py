"""The public names of the library, which `onegate` gives when the first of them is asked for."""

from typing import TYPE_CHECKING, Final

from onegate import ops
from onegate.engines import Choice, EngineError
from onegate.language import (
    Affine,
    Diagonal,
    Fit,
    Graph,
    LayerNorm,
    RMSNorm,
    Unit,
    UnitError,
    Vector,
)
from onegate.nn import named
from onegate.nn.cells import Cell
from onegate.nn.convert import from_torch, to_torch
from onegate.nn.init import chrono, forget_bias
from onegate.nn.layers import Recurrent
from onegate.nn.named import *  # noqa: F403
from onegate.ops import *  # noqa: F403
from onegate.tracing import trace
from onegate.units import UNITS, register

if TYPE_CHECKING:
    from onegate import probe
    from onegate.export.onnx import onnx_table
    from onegate.export.targets import export
    from onegate.nn import drop_in
    from onegate.nn.drop_in import accelerate, accelerated, engine_report, restore
    from onegate.nn.saving import load, safe_globals, save
    from onegate.streaming import Stream, stream

# Names that a layer can do without -> their modules, which are imported when one is asked for.
LATE: Final = {
    "onnx_table": "onegate.export.onnx",
    "export": "onegate.export.targets",
    **dict.fromkeys(
        ("accelerate", "accelerated", "engine_report", "restore"), "onegate.nn.drop_in"
    ),
    **dict.fromkeys(("load", "safe_globals", "save"), "onegate.nn.saving"),
    **dict.fromkeys(("Stream", "stream"), "onegate.streaming"),
    "drop_in": "onegate.nn",
    "probe": "onegate",
}

__all__ = [
    "UNITS",
    "Affine",
    "Cell",
    "Choice",
    "Diagonal",
    "EngineError",
    "Fit",
    "Graph",
    "LayerNorm",
    "RMSNorm",
    "Recurrent",
    "Stream",
    "Unit",
    "UnitError",
    "Vector",
    "accelerate",
    "accelerated",
    "chrono",
    "drop_in",
    "engine_report",
    "export",
    "forget_bias",
    "from_torch",
    "load",
    "onnx_table",
    "probe",
    "register",
    "restore",
    "safe_globals",
    "save",
    "stream",
    "to_torch",
    "trace",
]
__all__ += named.__all__
__all__ += ops.__all__


def __getattr__(name: str) -> object:
    import importlib

    if name not in LATE:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    module = importlib.import_module(LATE[name])
    if not hasattr(module, name):
        importlib.import_module(f"{LATE[name]}.{name}")
    globals()[name] = getattr(module, name)
    return globals()[name]
