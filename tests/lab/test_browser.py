"""The browser helper sees what a page does."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.lab.browser import Browser, BrowserError, Page, find_chromium

pytestmark = [
    pytest.mark.browser,
    pytest.mark.skipif(find_chromium() is None, reason="no Chromium: apt-get install chromium"),
]


@pytest.fixture(scope="module")
def browser() -> Iterator[Browser]:
    with Browser() as started:
        yield started


def page_of(browser: Browser, folder: Path, body: str) -> Page:
    path = folder / "page.html"
    path.write_text(f"<!doctype html><title>a page</title><body>{body}")
    return browser.open(path)


def test_expressions_and_promises_have_values(browser: Browser, tmp_path: Path) -> None:
    page = page_of(browser, tmp_path, "<p>1<p>2")
    assert page.evaluate("document.title") == "a page"
    assert page.evaluate("[...document.querySelectorAll('p')].map(p => +p.textContent)") == [1, 2]
    assert page.evaluate("new Promise(done => setTimeout(() => done('later'), 20))") == "later"
    assert page.problems == []


def test_a_script_that_fails_is_an_error(browser: Browser, tmp_path: Path) -> None:
    page = page_of(browser, tmp_path, "")
    with pytest.raises(BrowserError, match="nowhere is not defined"):
        page.evaluate("nowhere.at.all")


def test_keys_reach_the_page(browser: Browser, tmp_path: Path) -> None:
    page = page_of(
        browser, tmp_path, "<input type=range min=0 max=9 value=3 id=slider><input id=text>"
    )
    page.evaluate("slider.focus()")
    for key in ("ArrowRight", "ArrowRight", "ArrowLeft"):
        page.press(key)
    assert page.evaluate("slider.value") == "4"
    page.press("End")
    assert page.evaluate("slider.value") == "9"
    page.press("Tab")
    for key in "a b":
        page.press(key)
    assert page.evaluate("text.value") == "a b"


def test_problems_are_kept(browser: Browser, tmp_path: Path) -> None:
    page = page_of(
        browser,
        tmp_path,
        "<img src=missing.png><script>console.log('fine', 1); console.error('bad');"
        " throw new Error('thrown')</script>",
    )
    assert page.messages == ["log: fine 1", "error: bad"]
    # The log tells of requests in its own time.
    while len(page.problems) < 4:
        page.evaluate("new Promise(done => setTimeout(done, 10))")
    told = "\n".join(page.problems)
    for problem in ("error: bad", "thrown", "missing.png", "ERR_FILE_NOT_FOUND"):
        assert problem in told
    assert page.requests[1].endswith("/missing.png")


def test_sizes_and_colours_are_as_asked(browser: Browser, tmp_path: Path) -> None:
    page = page_of(browser, tmp_path, "<div style='height: 2000px'>tall</div>")
    dark = "matchMedia('(prefers-color-scheme: dark)').matches"
    assert (page.evaluate("innerWidth"), page.evaluate(dark)) == (1280, False)
    page.resize(800, 300)
    page.prefer(dark=True)
    assert (page.evaluate("innerWidth"), page.evaluate(dark)) == (800, True)
    sizes = {whole: page.screenshot(whole=whole)[16:24] for whole in (False, True)}
    assert sizes[False] == (800).to_bytes(4, "big") + (300).to_bytes(4, "big")
    assert int.from_bytes(sizes[True][4:], "big") > 2000
    page.screenshot(tmp_path / "shot.png")
    assert (tmp_path / "shot.png").read_bytes().startswith(b"\x89PNG")


def test_a_missing_file_is_an_error(browser: Browser, tmp_path: Path) -> None:
    with pytest.raises(BrowserError, match="ERR_FILE_NOT_FOUND"):
        browser.open(tmp_path / "nowhere.html")


def test_two_pages_at_once_are_told_apart(browser: Browser, tmp_path: Path) -> None:
    (tmp_path / "other").mkdir()
    one = page_of(browser, tmp_path, "one")
    other = page_of(browser, tmp_path / "other", "<script>console.warn('other')</script>")
    assert one.evaluate("document.body.textContent") == "one"
    assert (one.problems, other.problems) == ([], ["warning: other"])


def test_a_browser_that_is_gone_is_an_error(tmp_path: Path) -> None:
    with Browser() as browser:
        page = page_of(browser, tmp_path, "")
        browser._process.kill()
        browser._process.wait()
        with pytest.raises(BrowserError, match="the browser ended before"):
            page.evaluate("1")
