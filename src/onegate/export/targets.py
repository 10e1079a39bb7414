"""Where a model can go: `onegate.export(model, path, format=...)` looks its format up here."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from torch import nn

# Writes a model to a path, a file or a folder as the format has it, and returns that path.
Target = Callable[..., Path]


def _c(model: nn.Module, path: Path, **options: Any) -> Path:
    from onegate.export.c_files import write

    return _checked(write, options)(model, path, **options)


def _onnx(model: nn.Module, path: Path, **options: Any) -> Path:
    from onegate.export.onnx import export_onnx

    return _checked(export_onnx, options)(model, path, **options)


def _checked(write: Target, options: Mapping[str, Any]) -> Target:
    """`write`, if it has these options."""
    _, _, *known = inspect.signature(write).parameters
    if unknown := [name for name in options if name not in known]:
        raise TypeError(f"{unknown[0]} is no option of this format: it has {', '.join(known)}")
    return write


# A format is a row. Each imports what it needs when it is called: units import this package.
TARGETS: dict[str, Target] = {"c": _c, "onnx": _onnx}


def export(
    model: nn.Module, path: str | Path, *, format: str | None = None, **options: Any
) -> Path:
    """Writes a model in a form that runs without onegate; returns where it is.

    format: a row of `TARGETS`; by default what the ending of `path` says. The options are those
    of the format.

    >>> onegate.export(model, "out/", format="c")
    """
    path = Path(path)
    asked = path.suffix.removeprefix(".") if format is None else format
    if asked not in TARGETS:
        known = " or ".join(f'format="{name}"' for name in TARGETS)
        raise ValueError(f"{str(path)!r} is for format {asked!r}, which is not known: use {known}")
    return TARGETS[asked](model, path, **options)
