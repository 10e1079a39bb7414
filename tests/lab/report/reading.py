"""A report page read back: sections, tables, figures, as a program sees them."""

from __future__ import annotations

from dataclasses import dataclass, field
from html.parser import HTMLParser

_VOID = {"meta", "link", "br", "col"}


@dataclass
class Cell:
    text: str = ""
    values: list[float] = field(default_factory=list)


@dataclass
class ReadTable:
    label: str
    rows: list[list[Cell]] = field(default_factory=list)

    def row(self, first: str) -> list[Cell]:
        (found,) = [row for row in self.rows if row[0].text == first]
        return found

    def cell(self, first: str, column: str) -> Cell:
        headings = [cell.text for cell in self.rows[0]]
        return self.row(first)[headings.index(column)]


@dataclass
class Section:
    text: str = ""
    tables: list[ReadTable] = field(default_factory=list)
    figures: list[str] = field(default_factory=list)
    alts: list[str] = field(default_factory=list)

    def table(self, start: str) -> ReadTable:
        (found,) = [table for table in self.tables if table.label.startswith(start)]
        return found


class ReadPage(HTMLParser):
    """Also checks on the way that every element is closed in its place and no id comes twice."""

    def __init__(self, content: str) -> None:
        super().__init__()
        self.open: list[str] = []
        self.ids: list[str] = []
        self.attributes: list[tuple[str, str, str]] = []
        self.sections: dict[str, Section] = {"": Section()}
        self.current = self.sections[""]
        self.feed(content)
        assert self.open == []
        assert len(self.ids) == len(set(self.ids))

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        if tag not in _VOID:
            self.open.append(tag)
        given = {name: value or "" for name, value in attrs}
        self.attributes += [(tag, name, value) for name, value in given.items()]
        if "id" in given:
            self.ids.append(given["id"])
        if tag == "section":
            self.current = self.sections[given["id"]] = Section()
        elif tag == "table":
            self.current.tables.append(ReadTable(given["aria-label"]))
        elif tag == "figure":
            self.current.figures.append(given["id"])
        elif tag == "svg":
            self.current.alts.append(given["aria-label"])
        elif tag == "tr":
            self.current.tables[-1].rows.append([])
        elif tag in ("td", "th"):
            self.current.tables[-1].rows[-1].append(Cell())
        elif tag == "data":
            self._cell().values.append(float(given["value"]))

    def handle_startendtag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.handle_starttag(tag, attrs)
        self.handle_endtag(tag)

    def handle_endtag(self, tag: str) -> None:
        assert self.open.pop() == tag
        if tag == "section":
            self.current = self.sections[""]

    def handle_data(self, data: str) -> None:
        if "style" in self.open or "svg" in self.open:
            return
        self.current.text += data
        if "table" in self.open and self.open[-1] not in ("tr", "thead", "tbody", "table"):
            self._cell().text += data

    def _cell(self) -> Cell:
        return self.current.tables[-1].rows[-1][-1]
