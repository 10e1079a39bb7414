"""Just enough HTML: elements whose text cannot break out of them, tables, whole documents."""

from __future__ import annotations

import base64
import hashlib
import html
import json
import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from importlib import resources

_VOID = ("meta", "link", "br", "col", "input")
# Control characters but for the tab and the end of a line, marks that turn the direction of the
# text after them, and what no UTF-8 file can hold: names of files may have any of these.
_UNREADABLE = re.compile(
    "[\x00-\x08\x0b-\x1f\x7f-\x9f\u061c\u200e\u200f\u2028-\u202e\u2066-\u2069\ud800-\udfff\ufffe\uffff]"
)
_PLAIN_WORD = re.compile("[a-z0-9_]+")
_LONGEST = 80


class Markup(str):
    """Text that is HTML already; any other string is escaped when it enters an element."""

    __slots__ = ()


def readable(text: str) -> str:
    """Text from outside with what cannot be shown written as an escape, such as \\u202e."""
    return _UNREADABLE.sub(lambda found: ascii(found[0])[1:-1], text)


def short(text: str, most: int = 40) -> str:
    """Text from outside as a figure has room for it, of at most so many letters."""
    text = readable(text)
    return text if len(text) <= most else f"{text[: most - 1]}\N{HORIZONTAL ELLIPSIS}"


def identifier(*words: str) -> str:
    """The words as one name of [a-z0-9_-] for elements and files; other words give another name.

    Plain words are joined. What else is in them is left out and a digest of all of it added, so
    that no two names are alike, not even where upper and lower case are.

    >>> identifier("adding", "tuned", "curves"), identifier("../a")
    ('adding-tuned-curves', 'a-3312392e')
    """
    name = "-".join(words)
    if all(map(_PLAIN_WORD.fullmatch, words)) and len(name) <= _LONGEST:
        return name
    digest = hashlib.sha256(json.dumps(words).encode()).hexdigest()[:8]
    plain = re.sub("[^a-z0-9_]+", "-", name.lower())[:_LONGEST].strip("-")
    return f"{plain}-{digest}" if plain else f"x-{digest}"


def escaped(text: str) -> Markup:
    """Text as HTML."""
    return text if isinstance(text, Markup) else Markup(html.escape(readable(text)))


def joined(*parts: str) -> Markup:
    """Parts one after the other."""
    return Markup("".join(escaped(part) for part in parts))


def tag(name: str, /, *children: str, **attributes: str | int | None) -> Markup:
    """An element; `class_` is written as class, other underscores as hyphens, None left out.

    >>> tag("p", "2 < 3", class_="note")
    '<p class="note">2 &lt; 3</p>'
    """
    written = "".join(
        f' {key.rstrip("_").replace("_", "-")}="{escaped(str(value))}"'
        for key, value in attributes.items()
        if value is not None
    )
    if name in _VOID:
        return Markup(f"<{name}{written}>")
    return Markup(f"<{name}{written}>{joined(*children)}</{name}>")


def _policy(script: str, wasm: bool) -> str:
    """What the browser lets the page do: run this one script, show itself, nothing else.

    Styles are allowed inline because figures have them as attributes, which have no hash.
    """
    digest = base64.b64encode(hashlib.sha256(script.encode()).digest()).decode()
    scripts = f"'sha256-{digest}'" if script else "'none'"
    scripts += " 'wasm-unsafe-eval'" * wasm
    return (
        f"default-src 'none'; script-src {scripts}; style-src 'unsafe-inline'; img-src data:; "
        "base-uri 'none'; form-action 'none'"
    )


def _file(name: str) -> str:
    return resources.files("onegate.lab.pages").joinpath(name).read_text(encoding="utf-8")


def document(
    title: str, body: Markup, style: str = "", script: str = "", *, wasm: bool = False
) -> str:
    """A page that needs nothing beside itself, in the common look.

    style: more CSS. script: the page's own, at its end, after that of the tables where there are
    any; no other one can run. wasm: it may compile WebAssembly.
    """
    look = _file("page.css")
    if "<table" in body:
        script = _file("tables.js") + script
    head = tag(
        "head",
        tag("meta", charset="utf-8"),
        tag("meta", http_equiv="Content-Security-Policy", content=_policy(script, wasm)),
        tag("meta", name="viewport", content="width=device-width, initial-scale=1"),
        tag("meta", name="color-scheme", content="light dark"),
        tag("link", rel="icon", href="data:,"),
        tag("title", title),
        tag("style", Markup(look + style)),
    )
    if script:
        body = joined(body, tag("script", Markup(script)))
    return f"<!doctype html>\n{tag('html', head, tag('body', body), lang='en')}\n"


def data(content: object, id: str) -> Markup:
    """An element that holds JSON for the page's script, which nothing in it can end."""
    text = json.dumps(content, separators=(",", ":"), allow_nan=False).replace("<", "\\u003c")
    return tag("script", Markup(text), type="application/json", id=id)


def prose(text: str) -> Markup:
    """Text in which `backticks` mark code."""
    parts = text.split("`")
    return joined(*(code(part) if odd % 2 else part for odd, part in enumerate(parts)))


def code(text: str) -> Markup:
    """Code whose words, such as --options, are not torn apart at the end of a line."""
    words = [tag("span", word) if word.startswith("-") else escaped(word) for word in text.split()]
    return tag("code", Markup(" ".join(words)))


def number(value: float | int, text: str, class_: str | None = None) -> Markup:
    """A number as it is read, with all its digits for programs (and on hovering)."""
    return tag("data", text, value=repr(value), title=repr(value), class_=class_)


def count(value: int) -> Markup:
    """A whole number with its thousands apart."""
    return tag("data", f"{value:,}", value=value)


def note_mark(position: int) -> Markup:
    """The raised number of a note."""
    return tag("sup", str(position))


@dataclass(frozen=True)
class Column:
    """A column: its heading, whether numbers stand in it, and the class of its cells, if any."""

    heading: str
    numeric: bool = True
    kind: str = ""

    @property
    def classes(self) -> str | None:
        return " ".join([*(["number"] if self.numeric else []), *self.kind.split()]) or None


@dataclass(frozen=True)
class Table:
    """A table.

    over: headings above the columns' own, each with how many it spans. notes: below the table,
        numbered from 1; `note_mark` refers to them.
    """

    caption: str
    columns: Sequence[Column]
    rows: Sequence[Sequence[str]]
    over: Sequence[tuple[str, int]] = ()
    notes: Sequence[str] = ()

    def __post_init__(self) -> None:
        for row in self.rows:
            if len(row) != len(self.columns):
                raise ValueError(f"a row of {len(row)} cells in {len(self.columns)} columns: {row}")

    def html(self) -> Markup:
        """The table in a box of its own, in which it can be scrolled on a narrow screen."""
        head = [tag("tr", *map(self._heading, self.columns))]
        if self.over:
            head.insert(0, tag("tr", *self._spans()))
        table = tag(
            "table",
            tag("thead", *head),
            tag("tbody", *map(self._row, self.rows)),
            aria_label=self.caption,
        )
        # The caption stands outside, where it stays in view.
        return joined(
            tag("p", self.caption, class_="caption"),
            tag("div", table, class_="scroll", role="region", tabindex=0, aria_label=self.caption),
            *(
                tag("p", note_mark(position), " ", note, class_="note")
                for position, note in enumerate(self.notes, start=1)
            ),
        )

    def _spans(self) -> Iterator[Markup]:
        """The headings above; each has the class of its first column."""
        place = 0
        for text, span in self.over:
            kind = " ".join(["over", *self.columns[place].kind.split()])
            yield tag("th", text, colspan=span, scope="colgroup" if text else None, class_=kind)
            place += span

    @staticmethod
    def _heading(column: Column) -> Markup:
        return tag("th", column.heading, scope="col", class_=column.classes)

    def _row(self, row: Sequence[str]) -> Markup:
        first, *rest = row
        cells = [tag("th", first, scope="row")]
        for cell, column in zip(rest, self.columns[1:], strict=True):
            cells.append(tag("td", cell, class_=column.classes))
        return tag("tr", *cells)
