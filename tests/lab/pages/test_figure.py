"""Figures by any name: their files stay in their folder, their elements run nothing."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

import pytest

from onegate.lab.inside.inspection_page import picture
from onegate.lab.pages import canvas
from onegate.lab.pages.figure import Figure, element, finished, write_figures
from onegate.lab.pages.markup import (
    Markup,
    data,
    document,
    identifier,
    joined,
    readable,
    short,
    tag,
)
from onegate.language import Affine, Unit, tanh
from onegate.tracing import trace
from tests.lab.browser import ATTACKS, Browser, find_chromium
from tests.lab.report.reading import ReadPage

in_browser = [
    pytest.mark.browser,
    pytest.mark.skipif(find_chromium() is None, reason="no Chromium: apt-get install chromium"),
]
POLICY = re.compile(r'<meta http-equiv="Content-Security-Policy" content="[^"]*">')


def drawn(words: Sequence[str], label: str) -> Figure:
    with canvas.style():
        figure, axes = canvas.new(2.0)
        axes.plot([1, 2], label=label)
        axes.set_title(label)
        axes.set_xticks([0, 1], [label, "#ffffff"])
        canvas.legend_below(figure, axes)
        return finished(figure, "all", words, label, label, [("a", label)])


@pytest.fixture(scope="module")
def attacked(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A page with figures whose names and labels are attacks, and their files."""
    folder = tmp_path_factory.mktemp("attacked") / "page"
    every = [drawn(["adding", text, "curves"], short(text)) for text in ATTACKS]
    write_figures(every, folder / "figures")
    body = joined(
        tag("section", *map(element, every), id="all"),
        *(tag("p", text, title=text) for text in ATTACKS),
        data({"texts": ATTACKS}, id="data"),
    )
    path = folder / "page.html"
    path.write_bytes(document(ATTACKS[0], body, script="window.own = 1").encode())
    return path


def test_names_of_figures_are_plain_and_their_own() -> None:
    alike = [["a", "b"], ["a-b"], ["A", "b"], ["a b"], ["a/b"], ["a", "B"], ["a--b"], ["a_b"], [""],
             ["..", "a", "b"], ["\u00e4"], ["\u00f6"]]  # fmt: skip
    every = [*alike, *(["adding", text, "curves"] for text in ATTACKS)]
    names = [identifier(*words) for words in every]
    assert all(re.fullmatch("[a-z0-9][a-z0-9_-]{0,99}", name) for name in names)
    assert len(set(names)) == len(every)
    assert identifier("mnist_rows", "flow", "curves") == "mnist_rows-flow-curves"
    assert identifier("../a") == "a-3312392e"


def test_files_stay_in_their_folder(attacked: Path) -> None:
    everywhere = {path for path in attacked.parent.parent.rglob("*") if path.is_file()}
    inside = set((attacked.parent / "figures").iterdir())
    assert everywhere == inside | {attacked}
    assert len(inside) == 4 * len(ATTACKS)


def test_text_of_others_reads_back(attacked: Path) -> None:
    content = attacked.read_text()
    read = ReadPage(content)
    links = [value for kind, name, value in read.attributes if (kind, name) == ("a", "href")]
    assert all((attacked.parent / link).is_file() for link in links)
    assert read.sections["all"].alts == list(map(short, ATTACKS))
    titles = [value for kind, name, value in read.attributes if (kind, name) == ("p", "title")]
    assert titles == list(map(readable, ATTACKS))
    held = content.partition('id="data">')[2].partition("</script>")[0]
    assert json.loads(held) == {"texts": list(ATTACKS)}


def test_labels_are_drawn_as_they_are(attacked: Path) -> None:
    for path in (attacked.parent / "figures").glob("*.svg"):
        texts = ["".join(each.itertext()) for each in ElementTree.parse(path).iter()]
        assert "#ffffff" in texts
    for text in ("$\\frac{", 'id="x" url(#y) #1c2126'):
        figure = drawn(["x"], text)
        for form in (figure.svg, figure.inline):
            root = ElementTree.fromstring(form[form.index("<svg") :].replace("xlink:", ""))
            assert text in ["".join(each.itertext()) for each in root.iter()]


def test_what_cannot_be_shown_is_written_as_an_escape() -> None:
    assert readable("a\u202eb\x00\udcff\n\u00e4\u0634") == "a\\u202eb\\x00\\udcff\n\u00e4\u0634"
    assert tag("p", "\x1b", title="\ud800").encode() == b'<p title="\\ud800">\\x1b</p>'


class Attack(Unit):
    """A unit with a script for its title."""

    title = ATTACKS[2] + " --!> -->" + ATTACKS[0]
    W_h = Affine()

    def step(self, x: Any, h: Any) -> Any:
        return tanh(self.W_h[h, x])


def test_a_title_of_a_unit_is_text() -> None:
    content = picture(trace(Attack(), 2, 2), "unit-0")
    assert "<script" not in content
    assert ReadPage(content).sections[""].alts == [f"Data flow of {Attack.title}"]


def test_an_element_of_a_figure_needs_an_identifier() -> None:
    with pytest.raises(ValueError, match="cannot begin an identifier"):
        canvas.inline("<svg></svg>", 'x" onload="alert(1)', "")


@pytest.fixture(scope="module")
def browser() -> Iterator[Browser]:
    with Browser() as started:
        yield started


class TestInABrowser:
    pytestmark = in_browser

    @pytest.mark.parametrize("policy", [True, False])
    def test_nothing_of_others_runs(
        self, browser: Browser, attacked: Path, tmp_path: Path, policy: bool
    ) -> None:
        """Not even where the browser would allow it."""
        path = attacked
        if not policy:
            content, taken = POLICY.subn("", attacked.read_text())
            assert taken == 1
            path = tmp_path / "page.html"
            path.write_text(content)
        page = browser.open(path)
        assert page.evaluate("[window.own, window.attacked]") == [1, None]
        assert page.evaluate("document.title") == ATTACKS[0]
        assert page.evaluate("document.scripts.length") == 2
        assert page.evaluate("document.querySelectorAll('img, [onload], [onerror]').length") == 0
        assert page.problems == []

    def test_files_of_figures_run_nothing(self, browser: Browser, attacked: Path) -> None:
        for path in sorted((attacked.parent / "figures").glob("*.svg")):
            page = browser.open(path)
            assert page.evaluate("document.documentElement.nodeName") == "svg", path
            assert page.evaluate("window.attacked") is None
            assert page.problems == []

    @pytest.mark.parametrize("script", ["", "window.own = 1"])
    @pytest.mark.parametrize(
        "markup",
        [
            "<script>window.attacked = 1</script>",
            "<img src=x onerror='window.attacked = 1'>",
            "<svg onload='window.attacked = 1'></svg>",
            "<iframe srcdoc='<script>parent.attacked = 1</script>'></iframe>",
            "<object data='data:text/html,x'></object>",
            "<base href='https://example.org/'>",
            "<link rel=stylesheet href='x.css'>",
        ],
    )
    def test_the_policy_forbids_what_the_page_does_not_need(
        self, browser: Browser, tmp_path: Path, markup: str, script: str
    ) -> None:
        """What would slip through in spite of all is told and not run."""
        path = tmp_path / "page.html"
        path.write_text(document("mine", Markup(markup), script=script))
        page = browser.open(path)
        assert page.evaluate("window.attacked") is None
        assert page.evaluate("window.own") == (1 if script else None)
        assert page.evaluate("document.baseURI") == path.as_uri()
        assert any("Content Security Policy" in problem for problem in page.problems)
