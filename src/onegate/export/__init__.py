"""Other forms of a unit, each a function of its graph, and of trained models.

`onegate.export` is this package and can be called: it is `onegate.export.targets.export`.
"""

from __future__ import annotations

import sys
from pathlib import Path
from types import ModuleType
from typing import Any

from torch import nn


class _Callable(ModuleType):
    def __call__(self, model: nn.Module, path: str | Path, **options: Any) -> Path:
        from onegate.export.targets import export

        return export(model, path, **options)


sys.modules[__name__].__class__ = _Callable
