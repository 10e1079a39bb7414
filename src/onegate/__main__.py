"""The `onegate` command, which `python -m onegate` is too."""

from __future__ import annotations

import sys

from onegate.extras import MissingExtraError, need


def main() -> int:
    """Runs the command line, or says what to install for it; returns the exit code."""
    if sys.argv[1:2] == ["--version"]:  # the library alone has one, too
        from onegate import __version__

        print(f"onegate {__version__}")
        return 0
    try:
        need(" ".join(["onegate", *sys.argv[1:2]]), "lab")
    except MissingExtraError as error:
        print(error, file=sys.stderr)
        return 2
    from onegate.lab.cli import main

    return main()


if __name__ == "__main__":
    sys.exit(main())
