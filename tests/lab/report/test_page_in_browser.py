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
            assert page.evaluate("document.scripts.length") == 0
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
