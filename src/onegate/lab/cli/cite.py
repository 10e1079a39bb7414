"""`onegate cite`: BibTeX of the library and of the papers that units come from."""

from __future__ import annotations

import argparse
import re
from functools import cache
from pathlib import Path

from onegate import __version__
from onegate.lab.cli.options import add_plugins, unit
from onegate.units import get

_CITATION = re.compile(r"(?P<authors>\D+?) (?P<year>\d{4}), (?P<title>[^;]+)")


def register(parser: argparse.ArgumentParser) -> None:
    add_plugins(parser)
    parser.add_argument(
        "units", nargs="*", type=unit, default=["mgu"], metavar="unit",
        help="names, or FILE.py:Class (default: mgu)",
    )  # fmt: skip
    parser.set_defaults(run=run)


def run(args: argparse.Namespace) -> int:
    """Prints the entries, each once."""
    entries = [library(), *(entry(get(name).citation, name) for name in args.units)]
    print("\n\n".join(dict.fromkeys(entries)))
    return 0


def library() -> str:
    """The library itself."""
    fields = {
        "author": "{The onegate authors}",
        "title": "{onegate}: gated recurrent units written once as equations",
        "version": __version__,
    }
    return _written("misc", "onegate", fields)


def entry(citation: str, name: str) -> str:
    """The entry of a unit's `citation`: authors, year, title; what follows a semicolon is a remark.

    That of papers.bib where it is there; of others what the citation says.

    >>> print(entry("Doe 2030, Cells to Come", "mine"))
    @misc{doe2030cells,
      author = {Doe},
      title = {{Cells to Come}},
      year = {2030},
    }
    """
    found = _CITATION.match(citation)
    if found is None:
        return f"% {name} names no paper"
    authors = found["authors"].replace(" et al.", ", others").split(", ")
    title = found["title"].strip()
    words = re.findall("[a-z]+", f"{authors[0].split()[-1]} {title}".lower())
    key = f"{words[0]}{found['year']}{words[1] if len(words[1]) > 3 else words[2]}"
    fields = {"author": " and ".join(authors), "title": f"{{{title}}}", "year": found["year"]}
    return papers().get(key) or _written("misc", key, fields)


@cache
def papers() -> dict[str, str]:
    """The entries of the papers that the library's units come from, by their keys."""
    entries = Path(__file__).with_name("papers.bib").read_text("utf-8").strip().split("\n\n")
    return {each[each.index("{") + 1 : each.index(",")]: each for each in entries}


def _written(kind: str, key: str, fields: dict[str, str]) -> str:
    lines = [f"  {name} = {{{value}}}," for name, value in fields.items()]
    return "\n".join([f"@{kind}{{{key},", *lines, "}"])
