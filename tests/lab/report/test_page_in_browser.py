"""The page in a real browser: phone and desktop, light and dark."""

from __future__ import annotations

import io
from collections.abc import Iterator
from pathlib import Path

import pytest
from PIL import Image

from tests.lab.browser import Browser, Page, find_chromium
from tests.lab.contrast import contrasts

pytestmark = [
    pytest.mark.browser,
    pytest.mark.skipif(find_chromium() is None, reason="no Chromium: apt-get install chromium"),
]

PHONE, DESKTOP = 390, 1280


@pytest.fixture(scope="module")
def page(reported: Path) -> Iterator[Page]:
    with Browser() as browser:
        yield browser.open(reported)


@pytest.mark.parametrize("dark", [False, True], ids=["light", "dark"])
@pytest.mark.parametrize("width", [PHONE, DESKTOP])
def test_it_fits_and_everything_is_to_be_seen(page: Page, width: int, dark: bool) -> None:
    page.resize(width)
    page.prefer(dark=dark)
    assert page.evaluate("innerWidth") == width
    assert page.evaluate("document.documentElement.scrollWidth") <= width
    boxes = page.evaluate(
        "[...document.querySelectorAll('figure svg')].map(svg => {"
        " const box = svg.getBoundingClientRect();"
        " return [box.left, box.right, box.width, box.height] })"
    )
    assert len(boxes) == 11
    for left, right, wide, high in boxes:
        assert left >= 0
        assert right <= width
        assert wide > 300
        assert high > 150
    assert page.problems == []


def test_it_asks_for_nothing_but_itself(page: Page, reported: Path) -> None:
    assert page.requests == [reported.resolve().as_uri()]
    assert page.problems == []


@pytest.mark.parametrize("width", [PHONE, DESKTOP])
def test_light_and_dark_differ(page: Page, width: int) -> None:
    page.resize(width)
    shots = []
    for dark in (False, True):
        page.prefer(dark=dark)
        shots.append(Image.open(io.BytesIO(page.screenshot(whole=False))).convert("L"))
    light, dark_one = (sum(shot.histogram()[128:]) / (width * 900) for shot in shots)
    assert light > 0.9
    assert dark_one < 0.1


@pytest.mark.parametrize("dark", [False, True], ids=["light", "dark"])
def test_text_stands_out(page: Page, dark: bool) -> None:
    """Contrast of 4.5 and more (WCAG AA) for every colour of text, in the figures too."""
    page.prefer(dark=dark)
    ratios = contrasts(
        page,
        "p, a, th, td, .changes, .better, .worse, .place, figcaption, summary, code, svg text",
    )
    assert len(ratios) > 10
    assert {what: ratio for what, ratio in ratios.items() if ratio < 4.5} == {}


def test_wide_tables_scroll_in_their_box_on_a_phone(page: Page) -> None:
    page.resize(PHONE)
    moved = page.evaluate(
        "(() => { const box = document.querySelector('#ptb .scroll'); box.scrollLeft = 200;"
        " const left = box.querySelector('tbody th').getBoundingClientRect().left;"
        " return [box.scrollLeft, left - box.getBoundingClientRect().left, scrollX] })()"
    )
    assert moved == [200, 0, 0]


def test_details_open_by_keyboard(page: Page) -> None:
    page.evaluate("document.querySelector('#adding summary').focus()")
    page.press("Enter")
    assert page.evaluate("document.querySelector('#adding details').open") is True
    assert page.evaluate("document.documentElement.scrollWidth <= innerWidth")
