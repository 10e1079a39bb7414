"""Tables of pages for papers: LaTeX that needs the package booktabs alone."""

from __future__ import annotations

import html
import re
from collections.abc import Iterable

from onegate.lab.pages.markup import Table, escaped

_SIGNS = {
    "\\": r"\textbackslash{}", "&": r"\&", "%": r"\%", "$": r"\$", "#": r"\#", "_": r"\_",
    "{": r"\{", "}": r"\}", "~": r"\textasciitilde{}", "^": r"\textasciicircum{}",
    "<": r"\textless{}", ">": r"\textgreater{}", "|": r"\textbar{}",
    "\N{PLUS-MINUS SIGN}": r"$\pm$", "\N{MINUS SIGN}": "$-$", "\N{EN DASH}": "--",
    "\N{DAGGER}": r"\dag{}", "\N{INFINITY}": r"$\infty$", "\N{MULTIPLICATION SIGN}": r"$\times$",
    "\N{HORIZONTAL ELLIPSIS}": r"\dots{}",
}  # fmt: skip
_RAISED = re.compile("<sup>(.*?)</sup>")
# What stands on a line of its own in a page.
_BLOCK = re.compile(r'<span class="changes">(.*?)</span>')
_TAG = re.compile("<[^>]*>")


def text(content: str) -> str:
    r"""Plain text as LaTeX.

    >>> text("mgu_gate_after: 88.4 \N{PLUS-MINUS SIGN} 0.1%")
    'mgu\\_gate\\_after: 88.4 $\\pm$ 0.1\\%'
    """
    return "".join(_SIGNS.get(letter, letter) for letter in " ".join(content.split()))


def cell(content: str) -> str:
    """A cell of a table, text or markup, as LaTeX: its text, and raised marks."""
    parts = _RAISED.split(_BLOCK.sub(r" (\1)", escaped(content)))
    said = (text(html.unescape(_TAG.sub("", part))) for part in parts)
    return "".join(
        f"\\textsuperscript{{{part}}}" if place % 2 else part for place, part in enumerate(said)
    )


def latex(table: Table) -> str:
    """A table as a tabular; its caption and the packages that it needs stand above as comments."""
    kinds = "".join("r" if column.numeric else "l" for column in table.columns)
    lines = [
        f"% {text(table.caption)}",
        r"% \usepackage{booktabs}",
        f"\\begin{{tabular}}{{@{{}}{kinds}@{{}}}}",
        r"\toprule",
    ]
    if table.over:
        lines += _over(table)
    lines.append(_line(cell(column.heading) for column in table.columns))
    lines.append(r"\midrule")
    lines += [_line(map(cell, row)) for row in table.rows]
    lines += [r"\bottomrule", r"\end{tabular}"]
    # Below the tabular, whose cells would not be broken into lines.
    for position, note in enumerate(table.notes, start=1):
        lines.append(f"\\par{{\\footnotesize\\textsuperscript{{{position}}} {text(note)}\\par}}")
    return "\n".join([*lines, ""])


def _line(cells: Iterable[str]) -> str:
    return f"{' & '.join(cells)} \\\\"


def _over(table: Table) -> list[str]:
    """The headings above the headings, with a rule under each."""
    spans, rules, at = [], [], 1
    for heading, span in table.over:
        spans.append(f"\\multicolumn{{{span}}}{{c}}{{{text(heading)}}}")
        if heading:
            rules.append(f"\\cmidrule(lr){{{at}-{at + span - 1}}}")
        at += span
    return [_line(spans), "".join(rules)]
