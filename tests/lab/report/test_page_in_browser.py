"""The page in a real browser: phone and desktop, light and dark."""

from __future__ import annotations

import io
import itertools
import json
import re
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from PIL import Image

from onegate.lab import report
from onegate.lab.runs import ComparedUnit, Comparison
from onegate.lab.tasks import TASKS
from tests.lab.browser import ATTACKS, Browser, Page, find_chromium
from tests.lab.contrast import contrasts
from tests.lab.report import synthetic
from tests.lab.report.reading import ReadPage

pytestmark = [
    pytest.mark.slow,
    pytest.mark.browser,
    pytest.mark.skipif(find_chromium() is None, reason="no Chromium: apt-get install chromium"),
]

PHONE, DESKTOP = 390, 1280
# Of any types: a file may hold anything.
UNIT: Any = ComparedUnit("gru", 100, (0.876, 0.879), 4.1, 38_700, 38_700, ())
COMPARED: Any = Comparison("adding", "flow", "units", "test_mse", (UNIT, UNIT))


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


def _attack(root: Path) -> None:
    """Runs of others: scripts in every name and field that a run folder has."""
    made = itertools.cycle(ATTACKS[:10])
    for seed, text in enumerate(ATTACKS):
        (run,) = synthetic.seeds(
            root, "adding", "tuned", "gru" if seed % 2 else "mgu", [0.001 * (seed + 1)],
            machine={**synthetic.MACHINE, "threads": [text], text: text, "processor": text,
                     "resumed_with": [{text: text}]},
        )  # fmt: skip
        content = json.loads((run / "recipe.json").read_text())
        content["model"]["unit_options"] = {"alpha": text}
        content["reasons"][text] = text
        (run / "recipe.json").write_text(json.dumps(content))
        (run / "notes").write_text(text, errors="replace")
        run.rename(root / f"{seed} {text.replace('/', '|')[:200]}")
    for field in ("name", "unit", "task", "clock"):
        (run,) = synthetic.seeds(root, "adding", "tuned", "mgu", [0.5])
        content = json.loads((run / "recipe.json").read_text())
        (run / "recipe.json").write_text(json.dumps({**content, field: next(made)}))
        run.rename(root / f"bad {field}")
    for field in ("parameters", "update", "seconds", "valid_mse", "test_mse"):
        (run,) = synthetic.seeds(root, "adding", "tuned", "mgu", [0.5])
        content = json.loads((run / "status.json").read_text())
        content["result"][field] = next(made)
        (run / "status.json").write_text(json.dumps(content))
        run.rename(root / f"bad {field}")
    (run,) = synthetic.seeds(root, "adding", "tuned", "mgu", [0.5])
    with (run / "metrics.jsonl").open("a") as file:
        file.write(json.dumps({"update": ATTACKS[0], "epoch": ATTACKS[0]}) + "\n")
    run.rename(root / "bad metrics")
    rows = (replace(unit, unit=next(made), runs=(next(made),)) for unit in COMPARED.units)
    replace(
        COMPARED, recipe=next(made), match=next(made), metric=next(made), units=tuple(rows)
    ).write(root / "comparison-attack.json")
    replace(COMPARED, units=(replace(COMPARED.units[0], hidden_size=ATTACKS[0]),)).write(
        root / "comparison-bad.json"
    )
    report.note_not_run(root, dict.fromkeys(TASKS, " ".join(ATTACKS[:10])))


def test_nothing_of_others_runs(tmp_path: Path) -> None:
    _attack(tmp_path / "runs")
    path = report.write(tmp_path / "runs", tmp_path / "out" / "report")
    written = {p.relative_to(tmp_path).parts[:2] for p in tmp_path.rglob("*") if p.is_file()}
    assert {top for top in written if top[0] != "runs"} == {("out", "report")}
    read = ReadPage(path.read_text())
    assert len(read.sections["adding"].table("Finished runs").rows) == 1 + len(ATTACKS)
    left_out = read.sections["left-out"].text
    assert len(set(re.findall(r"bad \w+(?=: )", left_out))) == 10
    assert "hidden_size is " in left_out
    assert read.sections["adding"].figures
    # What no policy would stop either.
    bare = path.with_name("bare.html")
    bare.write_text(re.sub("<meta http-equiv[^>]*>", "", path.read_text()))
    with Browser() as browser:
        for each in (path, bare):
            page = browser.open(each)
            assert page.evaluate("window.attacked") is None
            assert page.evaluate("document.scripts.length") == 1  # that of the tables
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


def column(page: Page, place: int) -> list[str]:
    found: list[str] = page.evaluate(
        f"[...document.querySelectorAll('#ptb .scroll table')].at(0).tBodies[0].rows.length && "
        f"[...[...document.querySelectorAll('#ptb .scroll table')].at(0).tBodies[0].rows]"
        f".filter(r => !r.hidden).map(r => r.cells[{place}].textContent)"
    )
    return found


def test_tables_are_sorted_by_their_headings(page: Page) -> None:
    page.resize(DESKTOP)
    heading = "document.querySelector('#ptb .scroll table').tHead.rows[0].cells[1]"
    before = column(page, 1)
    sizes = [int(text) for text in before]
    assert len(set(sizes)) > 1
    orders = []
    for _ in range(3):
        page.evaluate(f"{heading}.querySelector('button').click()")
        orders.append(
            (page.evaluate(f"{heading}.ariaSort"), [int(text) for text in column(page, 1)])
        )
    assert orders == [
        ("ascending", sorted(sizes)), ("descending", sorted(sizes, reverse=True)), ("none", sizes),
    ]  # fmt: skip
    assert page.problems == []


def test_long_tables_are_filtered(page: Page) -> None:
    every = column(page, 0)
    assert len(every) >= 10

    def type_in(text: str) -> str:
        return str(
            page.evaluate(
                "(() => { const label = document.querySelector('#ptb .filter');"
                f" const field = label.querySelector('input'); field.value = {json.dumps(text)};"
                " field.dispatchEvent(new Event('input'));"
                " return label.querySelector('output').textContent })()"
            )
        )

    told = type_in("paper MGU")
    left = column(page, 0)
    assert left == [name for name in every if name.startswith("paper, MGU")]
    assert told == f"{len(left)} of {len(every)} rows"
    assert type_in("") == ""
    assert column(page, 0) == every


def test_tables_fit_a_desktop_and_hint_on_a_phone(page: Page) -> None:
    cut = (
        "[...document.querySelectorAll('.scroll')].filter(b => b.checkVisibility() &&"
        " b.scrollWidth > b.clientWidth).map(b => b.getAttribute('aria-label'))"
    )
    page.resize(DESKTOP)
    assert page.evaluate(cut) == []
    page.resize(PHONE)
    assert page.evaluate(cut)
    assert "gradient" in page.evaluate(
        "getComputedStyle(document.querySelector('.scroll')).backgroundImage"
    )
    # The hint lies behind the cells: no ground may cover it.
    grounds = page.evaluate(
        "[...new Set([...document.querySelectorAll('.scroll td')]"
        ".map(cell => getComputedStyle(cell).backgroundColor))]"
    )
    assert all(ground.startswith("rgba(") for ground in grounds), grounds
