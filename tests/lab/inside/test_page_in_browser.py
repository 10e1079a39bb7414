"""The page in a real browser: time, keys, sorting, two runs, phone and desktop, light and dark."""

from __future__ import annotations

import io
import itertools
import re
import shutil
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from PIL import Image

from onegate.lab import data
from onegate.lab.inside import writing
from onegate.lab.pages.markup import readable
from tests.lab import small_data
from tests.lab.browser import ATTACKS, Browser, Page, find_chromium
from tests.lab.contrast import contrasts

pytestmark = [
    pytest.mark.slow,
    pytest.mark.browser,
    pytest.mark.skipif(find_chromium() is None, reason="no Chromium: apt-get install chromium"),
]

PHONE, DESKTOP = 390, 1280
NAMES = ["digits", "text", "reviews", "numbers"]


@pytest.fixture(scope="module")
def browser() -> Iterator[Browser]:
    with Browser() as started:
        yield started


@pytest.fixture(scope="module")
def opened(browser: Browser, pages: dict[str, Path]) -> dict[str, Page]:
    return {name: browser.open(path) for name, path in pages.items()}


@pytest.fixture(autouse=True)
def from_the_start(opened: dict[str, Page]) -> None:
    for page in opened.values():
        page.resize(DESKTOP)
        page.prefer(dark=False)
        page.evaluate("document.activeElement.blur()")
        for name in ("example", "weights", "pass", "sort"):
            choose(page, name, 0)
        slide(page, 1)
        page.evaluate(
            "for (let i = 0; i < 6; i++) document.getElementById('time').dispatchEvent("
            "new KeyboardEvent('keydown', {key: 'ArrowUp', bubbles: true}))"
        )


def slide(page: Page, step: int) -> None:
    page.evaluate(
        f"(() => {{ const s = document.getElementById('time'); s.value = {step};"
        " s.dispatchEvent(new Event('input')) })()"
    )


def choose(page: Page, name: str, index: int) -> None:
    page.evaluate(
        f"(() => {{ const s = document.getElementById('{name}'); s.selectedIndex = {index};"
        " s.dispatchEvent(new Event('change')) })()"
    )


def pictures(page: Page, selector: str) -> list[str]:
    """What is drawn on each canvas."""
    found: list[str] = page.evaluate(
        f"[...document.querySelectorAll('{selector}')].map(c => c.toDataURL())"
    )
    return found


def text(page: Page, selector: str) -> str:
    return str(page.evaluate(f"document.querySelector('{selector}').textContent"))


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("dark", [False, True], ids=["light", "dark"])
@pytest.mark.parametrize("width", [PHONE, DESKTOP])
def test_it_fits_without_a_word_of_complaint(
    opened: dict[str, Page], name: str, width: int, dark: bool
) -> None:
    page = opened[name]
    page.resize(width)
    page.prefer(dark=dark)
    assert page.evaluate("innerWidth") == width
    assert page.evaluate("document.documentElement.scrollWidth") <= width
    boxes: list[list[float]] = page.evaluate(
        "[...document.querySelectorAll('figure svg, .unit-picture svg, .heat canvas, .map .now')]"
        ".map(e => { const b = e.getBoundingClientRect();"
        " return [b.left, b.right, b.width, b.height] })"
    )
    assert len(boxes) >= 6
    for left, right, wide, high in boxes:
        assert left >= 0
        assert right <= width
        assert min(wide, high) > 40
    assert page.problems == []


@pytest.mark.parametrize("name", NAMES)
def test_it_asks_for_nothing_but_itself(
    opened: dict[str, Page], pages: dict[str, Path], name: str
) -> None:
    assert opened[name].requests == [pages[name].resolve().as_uri()]
    assert pages[name].stat().st_size < 10_000_000


@pytest.mark.parametrize("name", NAMES)
def test_the_slider_changes_the_pictures(opened: dict[str, Page], name: str) -> None:
    page = opened[name]
    before, cursor = (
        pictures(page, ".map .now"),
        page.evaluate("document.querySelector('.cursor').style.left"),
    )
    inputs = pictures(page, "#picture, #bars") or [text(page, "#words .now")]
    heat = pictures(page, ".over-time")
    slide(page, 4)
    assert all(a != b for a, b in zip(before, pictures(page, ".map .now"), strict=True))
    assert (pictures(page, "#picture, #bars") or [text(page, "#words .now")]) != inputs
    assert pictures(page, ".over-time") == heat
    assert page.evaluate("document.querySelector('.cursor').style.left") != cursor
    assert text(page, "#clock").startswith("step 4 of ")
    slide(page, 1)
    assert pictures(page, ".map .now") == before


def test_nothing_of_others_runs(
    browser: Browser, runs: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Scripts for words of a text and names of folders: they are read, and move along time."""
    words = itertools.islice(itertools.cycle(ATTACKS), 300)
    reviews = replace(small_data.imdb(), vocabulary=tuple(words))
    monkeypatch.setattr(data, "imdb", lambda: reviews)
    folders = [tmp_path / text for text in (ATTACKS[5], "$\\frac{\n\u202e\udcff" + "long" * 40)]
    for folder in folders:
        shutil.copytree(runs / "imdb-simple", folder)
    path = writing.write(folders, tmp_path / "out" / "page")
    assert {p.name for p in (tmp_path / "out").iterdir()} == {"page"}
    bare = path.with_name("bare.html")
    bare.write_text(re.sub("<meta http-equiv[^>]*>", "", path.read_text()))
    for each in (path, bare):
        page = browser.open(each)
        said = {text(page, "#words .now").strip()}
        for step in range(2, page.evaluate("+document.getElementById('time').max") + 1):
            slide(page, step)
            said.add(text(page, "#words .now").strip())
        assert len(said & {readable(word).strip() for word in ATTACKS}) > 1
        assert page.evaluate("window.attacked") is None
        assert page.evaluate("document.scripts.length") == 2
        assert page.evaluate("document.querySelectorAll('img').length") == 0
        assert page.problems == []
    for figure in sorted((path.parent / "figures").glob("*.svg")):
        page = browser.open(figure)
        assert page.evaluate("document.documentElement.nodeName") == "svg", figure
        assert page.problems == []


def test_keys_move_along_time(opened: dict[str, Page]) -> None:
    page = opened["digits"]
    first = pictures(page, ".map .now")
    page.press("ArrowRight")
    page.press("ArrowRight")
    assert text(page, "#clock") == "step 3 of 28"
    assert pictures(page, ".map .now") != first
    page.press("ArrowLeft")
    assert text(page, "#clock") == "step 2 of 28"
    page.press("ArrowDown")  # scrolls the page: no unit is chosen without the slider in focus
    page.evaluate("document.getElementById('time').focus({preventScroll: true})")
    unit = text(page, "#run-0 .neuron")
    page.press("ArrowDown")
    assert text(page, "#run-0 .neuron") != unit
    page.press("ArrowUp")
    assert text(page, "#run-0 .neuron") == unit
    page.press("ArrowRight")
    assert text(page, "#clock") == "step 3 of 28"  # once, not twice
    page.press("End")
    assert text(page, "#clock") == "step 28 of 28"
    page.press("ArrowRight")
    assert text(page, "#clock") == "step 28 of 28"
    page.press("Home")
    page.press("ArrowLeft")
    assert text(page, "#clock") == "step 1 of 28"


def test_a_click_chooses_time_and_unit(opened: dict[str, Page]) -> None:
    page = opened["digits"]
    page.evaluate("document.querySelector('#run-0 .heat').scrollIntoView({block: 'center'})")
    x, y = page.evaluate(
        "(() => { const b = document.querySelector('#run-0 .heat canvas').getBoundingClientRect();"
        " return [b.left + b.width * 20.5 / 28, b.top + b.height * 3.5 / 6] })()"
    )
    for kind in ("mousePressed", "mouseReleased"):
        page.call("Input.dispatchMouseEvent", type=kind, x=x, y=y, button="left", clickCount=1)
    assert text(page, "#clock") == "step 21 of 28"
    assert (
        page.evaluate("document.querySelector('#run-0 .line').style.top") == f"{3.5 / 6 * 100:.4f}%"
    )


def _rows(page: Page, selector: str) -> list[Any]:
    """Each line of a heat map as one string of colours."""
    found: list[Any] = page.evaluate(
        f"(() => {{ const c = document.querySelector('{selector}');"
        " const p = c.getContext('2d').getImageData(0, 0, c.width, c.height).data;"
        " return [...Array(c.height).keys()].map(y =>"
        " p.slice(4 * y * c.width, 4 * (y + 1) * c.width).join()) })()"
    )
    return found


def test_units_are_sorted_by_memory(opened: dict[str, Page]) -> None:
    page = opened["digits"]
    spans = page.evaluate(
        "JSON.parse(document.getElementById('data').textContent).runs[0].passes[0]"
    )
    choose(page, "sort", 2)
    numbered = _rows(page, "#run-0 .over-time")
    for index, key in ((0, "span"), (1, "measured")):
        choose(page, "sort", index)
        expected = sorted(range(6), key=lambda unit: -spans[key][unit])
        assert _rows(page, "#run-0 .over-time") == [numbered[unit] for unit in expected]
        assert text(page, "#run-0 .neuron").startswith(f"neuron {expected[0]} of 6")
    options = "[...document.querySelectorAll('#sort option')].map(o => o.value)"
    assert opened["reviews"].evaluate(options) == ["measured", "number"]


def test_heat_maps_have_the_colours_of_the_values(opened: dict[str, Page]) -> None:
    """A gate at its highest is drawn in the page's blue, at zero in its paper."""
    page = opened["digits"]
    choose(page, "sort", 2)
    levels, colors = page.evaluate(
        """(() => {
          const value = JSON.parse(document.getElementById('data').textContent)
            .runs[0].passes[0].values[0];
          const canvas = document.querySelector('#run-0 .over-time');
          const dots = canvas.getContext('2d').getImageData(0, 0, 28, 6).data;
          return [[...atob(value.data[0][0])].map(c => c.charCodeAt(0)),
                  [...Array(28 * 6).keys()].map(i => [...dots.slice(4 * i, 4 * i + 3)])] })()"""
    )
    assert len(levels) == len(colors) == 28 * 6
    blue = (0x0B, 0x5C, 0xAD)
    for level, color in zip(levels, colors, strict=True):
        for part, full in zip(color, blue, strict=True):
            assert abs(part - (255 + level / 255 * (full - 255))) <= 1


def test_another_example_is_another_picture(opened: dict[str, Page]) -> None:
    for name, page in opened.items():
        slide(page, 3)
        before = pictures(page, ".over-time")
        answers = [text(page, "#answer"), page.evaluate("document.getElementById('time').max")]
        seen = {str(answers)}
        for index in range(1, 6):
            choose(page, "example", index)
            assert pictures(page, ".over-time") != before, name
            seen.add(
                str([text(page, "#answer"), page.evaluate("document.getElementById('time').max")])
            )
        assert len(seen) > 1 or name == "text"
        assert page.problems == []


def test_before_and_after_training(opened: dict[str, Page]) -> None:
    for page in opened.values():
        after = pictures(page, ".over-time")
        choose(page, "weights", 1)
        before = pictures(page, ".over-time")
        assert all(a != b for a, b in zip(after, before, strict=True))
        choose(page, "weights", 0)
        assert pictures(page, ".over-time") == after
    page = opened["numbers"]
    answer = text(page, "#run-0 .answer")
    choose(page, "weights", 1)
    assert text(page, "#run-0 .answer") != answer


def test_a_run_alone_has_its_picture_beside_the_values(opened: dict[str, Page]) -> None:
    boxes = (
        "['.unit-picture', '.maps'].map(s => {"
        " const b = document.querySelector(s).getBoundingClientRect();"
        " return [b.left, b.right, b.top, b.bottom] })"
    )
    page = opened["numbers"]
    picture, maps = page.evaluate(boxes)
    assert picture[1] <= maps[0]
    assert maps[2] < picture[3]
    page.resize(PHONE)
    picture, maps = page.evaluate(boxes)
    assert picture[3] <= maps[2]


def test_runs_stand_side_by_side_and_move_together(opened: dict[str, Page]) -> None:
    page = opened["digits"]
    boxes = "[...document.querySelectorAll('.run')].map(r => r.getBoundingClientRect().top)"
    tops = page.evaluate(boxes)
    assert tops[0] == tops[1]
    maps = "[...document.querySelectorAll('.maps')].map(r => r.getBoundingClientRect().top)"
    tops = page.evaluate(maps)
    assert tops[0] == tops[1]
    names = "[...document.querySelectorAll('#run-{} .name')].map(n => n.firstChild.textContent)"
    assert page.evaluate(names.format(0)) == ["f", "candidate", "h"]
    assert page.evaluate(names.format(1)) == ["z", "r", "candidate", "h"]
    before = [pictures(page, f"#run-{run} .now") for run in (0, 1)]
    page.press("ArrowRight")
    after = [pictures(page, f"#run-{run} .now") for run in (0, 1)]
    assert before[0] != after[0]
    assert before[1] != after[1]
    page.resize(PHONE)
    tops = page.evaluate(boxes)
    assert tops[0] < tops[1]


@pytest.mark.parametrize(("name", "passes"), [("numbers", 2), ("text", 2), ("digits", 1)])
def test_layers_and_directions(opened: dict[str, Page], name: str, passes: int) -> None:
    page = opened[name]
    assert page.evaluate("document.querySelectorAll('#pass option').length") == passes
    hidden = page.evaluate("document.getElementById('pass').closest('label').hidden")
    assert hidden is (passes == 1)
    if passes == 2:
        before = pictures(page, ".over-time")
        choose(page, "pass", 1)
        assert pictures(page, ".over-time") != before
        assert page.problems == []


def test_light_and_dark(opened: dict[str, Page]) -> None:
    page = opened["digits"]
    shares = []
    drawn = []
    for dark in (False, True):
        page.prefer(dark=dark)
        shot = Image.open(io.BytesIO(page.screenshot(whole=False))).convert("L")
        shares.append(sum(shot.histogram()[128:]) / (DESKTOP * 900))
        drawn.append(pictures(page, ".over-time") + pictures(page, "#picture"))
    assert shares[0] > 0.7
    assert shares[1] < 0.3
    assert all(a != b for a, b in zip(*drawn, strict=True))
    strokes = (
        "getComputedStyle(document.querySelector('.unit-picture svg path[style*=stroke]')).stroke"
    )
    dark_ink = page.evaluate(strokes)
    page.prefer(dark=False)
    assert page.evaluate(strokes) != dark_ink


@pytest.mark.parametrize("dark", [False, True], ids=["light", "dark"])
def test_text_stands_out(opened: dict[str, Page], dark: bool) -> None:
    """Contrast of 4.5 and more (WCAG AA)."""
    for page in opened.values():
        page.prefer(dark=dark)
        ratios = contrasts(
            page, "p, a, th, td, select, output, small, .name, label, #words .now, figcaption"
        )
        assert len(ratios) > 6
        assert {what: ratio for what, ratio in ratios.items() if ratio < 4.5} == {}


def test_it_opens_where_the_memory_changes_most(browser: Browser, pages: dict[str, Path]) -> None:
    for path in pages.values():
        page = browser.open(path)
        start = page.evaluate(
            "JSON.parse(document.getElementById('data').textContent).examples[0].start"
        )
        assert text(page, "#clock").startswith(f"step {start + 1} of ")
        assert start > 0
        assert page.problems == []


@pytest.mark.parametrize("name", NAMES)
def test_the_picture_has_the_values_of_the_chosen_neuron(
    opened: dict[str, Page], name: str
) -> None:
    page = opened[name]
    written = (
        "[...document.querySelectorAll('#run-0 .written')]"
        ".map(t => [t.dataset.value, t.textContent])"
    )
    for step in (2, 4):
        slide(page, step)
        shown = dict(page.evaluate(written))
        assert "h" in shown
        said = text(page, "#run-0 .neuron")
        for value, number in shown.items():
            assert f"{value} = {number}" in said


def test_heat_maps_have_axes_and_scales(opened: dict[str, Page]) -> None:
    for page in opened.values():
        maps = page.evaluate(
            "[...document.querySelectorAll('.map')].map(m => ["
            "m.querySelector('.y-axis').textContent, m.querySelectorAll('.x-axis span').length,"
            " m.querySelector('.scale').className, m.querySelector('.ends').children.length])"
        )
        for neurons, ticks, scale, ends in maps:
            assert neurons == "1neurons6"
            assert 2 <= ticks <= 7
            assert scale in ("scale gate", "scale signed")
            assert ends == 2


def test_every_class_is_among_the_examples(opened: dict[str, Page]) -> None:
    options = "[...document.querySelectorAll('#example option')].map(o => o.textContent)"
    said = [each.partition(": ")[2] for each in opened["reviews"].evaluate(options)]
    assert said[:4] == ["negative", "positive"] * 2
