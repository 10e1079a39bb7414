"""Recurrent units written once as equations, and layers of them that drop in for torch.nn."""

from typing import TYPE_CHECKING

from onegate import _moved

_moved.watch()

if TYPE_CHECKING:
    from onegate._public import *  # noqa: F403
    from onegate.nn.named import *  # noqa: F403
    from onegate.ops import *  # noqa: F403

    __all__: list[str]
    __version__: str
else:
    # The command imports what it needs, and torch takes long; for all others the operators are to
    # be there as soon as the package is, since exported models name them.
    def __getattr__(name: str) -> object:
        import importlib.util

        if name == "__version__":
            import importlib.metadata

            return importlib.metadata.version("onegate")
        if name == "__all__" or not name.startswith("__"):
            if importlib.util.find_spec(f"onegate.{name}") is not None:
                return importlib.import_module(f"onegate.{name}")
            public = importlib.import_module("onegate._public")
            if hasattr(public, name):
                globals()[name] = getattr(public, name)
                return globals()[name]
        raise AttributeError(f"module 'onegate' has no attribute {name!r}")

    def __dir__() -> list[str]:
        return sorted({*globals(), "__version__", *__getattr__("__all__")})

    def _is_command() -> bool:
        import os
        import sys

        started = (sys.argv or [""])[0]  # "-m" while `python -m onegate` looks for its module
        return started == "-m" or os.path.basename(started) in ("onegate", "onegate.exe")  # noqa: PTH119

    if not _is_command():
        from onegate import _public  # noqa: F401
