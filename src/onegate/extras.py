"""Packages that parts of onegate need beside torch and numpy, and what to install for them."""

from __future__ import annotations

import importlib.util
from typing import Final

# Packages by extra: `pip install 'onegate[extra]'` brings them.
EXTRAS: Final = {
    "picture": ("matplotlib",),
    "lab": ("rich", "pooch", "matplotlib"),
    "tensorboard": ("tensorboard",),
    "ray": ("ray", "fsspec"),
    "onnx": ("onnx", "onnxscript"),
    "peers": ("torchrecurrent", "flax", "jax", "keras"),
}


class MissingExtraError(ImportError, ValueError):
    """A package is not installed; the message says how to."""


def missing(extra: str) -> list[str]:
    """The packages of an extra that are not installed."""
    return [package for package in EXTRAS[extra] if importlib.util.find_spec(package) is None]


def need(what: str, extra: str) -> None:
    """Raises `MissingExtraError` if a package of the extra is missing; what: needs it."""
    if gone := missing(extra):
        raise MissingExtraError(f"{what} needs {', '.join(gone)}: pip install 'onegate[{extra}]'")
