"""`onegate draw`: pictures of units, drawn from their equations."""

from __future__ import annotations

import argparse

from onegate.lab.cli import options


def register(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "units",
        nargs="+", metavar="unit", type=options.unit,
        help="a name of `onegate units`, or FILE.py:Class",
    )  # fmt: skip
    options.add_plugins(parser)
    parser.add_argument(
        "-o", "--output", required=True, metavar="FILE", help="the picture, .svg, .pdf or .png"
    )
    parser.add_argument("--no-title", action="store_true", help="leave out the names of units")
    parser.add_argument("--dark", action="store_true", help="light lines on a dark ground")
    parser.add_argument("--input-size", type=int, default=28, help="default: %(default)s")
    parser.add_argument("--hidden-size", type=int, default=100, help="default: %(default)s")
    parser.set_defaults(run=run)


def run(args: argparse.Namespace) -> int:
    from onegate.picture.draw import draw, picture_path, save  # matplotlib is slow to import

    path = picture_path(args.output)
    sizes = {"input_size": args.input_size, "hidden_size": args.hidden_size}
    save(draw(*args.units, **sizes, dark=args.dark, title=not args.no_title), path)
    print(path)
    return 0
