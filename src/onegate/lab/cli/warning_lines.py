"""Warnings as users of a command should read them: the message, without a line of source."""

from __future__ import annotations

import sys
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any


@contextmanager
def plain_warnings() -> Iterator[None]:
    """Prints warnings as `onegate: warning: ...` inside the `with` block."""

    def show(message: Warning | str, *_: Any, **__: Any) -> None:
        print(f"onegate: warning: {message}", file=sys.stderr)

    with warnings.catch_warnings():
        warnings.simplefilter("always", UserWarning)
        warnings.showwarning = show
        yield
