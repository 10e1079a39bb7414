"""A figure in all its forms: files of its own, and an element of a page."""

from __future__ import annotations

import csv
import io
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path

from matplotlib import figure as drawing

from onegate import files
from onegate.lab.pages import canvas
from onegate.lab.pages.markup import Markup, identifier, tag

Row = Sequence[object]


@dataclass(frozen=True)
class Figure:
    """A figure: a file on its own and an element of a page.

    section: of the page. name: of its files, a `markup.identifier`. alt: what is to be seen, in
        words. inline: the SVG element. data: what was drawn, as CSV.
    """

    section: str
    name: str
    caption: str
    alt: str
    svg: str
    inline: Markup
    png: bytes
    pdf: bytes
    data: str


def finished(
    drawn: drawing.Figure,
    section: str,
    words: Sequence[str],
    caption: str,
    alt: str,
    rows: Iterable[Row],
) -> Figure:
    """A drawing in all its forms.

    words: which tell it from other figures, and make up its name; they may be anything. rows:
    what was drawn, headings first.
    """
    name = identifier(*words)
    svg = canvas.svg(drawn, name)
    data = io.StringIO()
    csv.writer(data, lineterminator="\n").writerows(rows)
    return Figure(
        section=section,
        name=name,
        caption=caption,
        alt=alt,
        svg=svg,
        inline=canvas.inline(svg, name, alt),
        png=canvas.png(drawn),
        pdf=canvas.pdf(drawn),
        data=data.getvalue(),
    )


def write_figures(drawn: Iterable[Figure], folder: Path) -> None:
    """Writes each figure as SVG, PDF, PNG and CSV."""
    folder.mkdir(parents=True, exist_ok=True)
    for figure in drawn:
        files.write(folder / f"{figure.name}.svg", figure.svg.encode())
        files.write(folder / f"{figure.name}.pdf", figure.pdf)
        files.write(folder / f"{figure.name}.png", figure.png)
        files.write(folder / f"{figure.name}.csv", figure.data.encode())


def element(figure: Figure) -> Markup:
    """The figure in a page whose folder has its files in figures/."""
    return tag(
        "figure",
        figure.inline,
        tag("figcaption", figure.caption, " ", links(figure)),
        id=figure.name,
    )


def links(figure: Figure) -> Markup:
    """Links to the figure's files."""
    files = (
        tag("a", kind.upper(), href=f"figures/{figure.name}.{kind}")
        for kind in ("svg", "pdf", "png", "csv")
    )
    return tag("span", Markup(" ".join(files)), class_="files")
