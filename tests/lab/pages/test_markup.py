"""HTML that text cannot break out of."""

from __future__ import annotations

import pytest

from onegate.lab.pages.markup import Column, Markup, Table, code, number, prose, tag
from tests.lab.report.reading import ReadPage

NASTY = """<script>alert("x")</script> & 'quotes' ü"""


def test_text_and_attributes_are_escaped() -> None:
    element = tag("p", NASTY, class_=NASTY, lang=None)
    assert "<script>" not in element
    read = ReadPage(element)
    assert read.sections[""].text == NASTY
    assert read.attributes == [("p", "class", NASTY)]


def test_markup_is_not_escaped_again() -> None:
    assert tag("p", tag("b", "1 < 2")) == "<p><b>1 &lt; 2</b></p>"
    assert tag("meta", charset="utf-8") == '<meta charset="utf-8">'


def test_code_in_prose() -> None:
    assert prose("run `a <b>` now") == "run <code>a &lt;b&gt;</code> now"
    assert code("do --it") == "<code>do <span>--it</span></code>"


def test_numbers_keep_all_digits() -> None:
    assert number(0.1 + 0.2, "0.3") == (
        '<data value="0.30000000000000004" title="0.30000000000000004">0.3</data>'
    )


def test_a_table_of_crooked_rows_is_refused() -> None:
    with pytest.raises(ValueError, match="a row of 2 cells in 1 columns"):
        Table("x", [Column("a")], [["1", "2"]])


def test_a_table_reads_back() -> None:
    table = Table(
        "numbers", [Column("who", numeric=False), Column("n")], [["a", Markup("<b>1</b>")]]
    )
    (read,) = ReadPage(table.html()).sections[""].tables
    assert read.label == "numbers"
    assert read.cell("a", "n").text == "1"
