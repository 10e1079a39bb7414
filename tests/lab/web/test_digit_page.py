"""The page that reads drawn digits, in a real browser."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import torch

from onegate.lab.cli import main
from onegate.lab.inside.opened import OpenRun, open_run
from onegate.lab.recipes import override, recipe
from onegate.lab.tasks.mnist import pixel_scaling
from onegate.lab.train import session
from tests.lab import small_data
from tests.lab.browser import Browser, Page, find_chromium

needs_clang = pytest.mark.skipif(
    shutil.which("clang") is None or shutil.which("wasm-ld") is None,
    reason="no compiler for WebAssembly: apt-get install clang lld",
)
needs_browser = pytest.mark.skipif(
    find_chromium() is None, reason="no Chromium: apt-get install chromium"
)
_SMALL = [
    "data.train=400", "data.valid=20", "data.test=60", "batch_size=50", "length=4",
    "model.hidden_size=9", "schedule.warmup=0",
]  # fmt: skip


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    folder = tmp_path_factory.mktemp("drawn") / "run"
    with pytest.MonkeyPatch.context() as patch:
        small_data.use(patch)
        session.train(override(recipe("mnist_rows", "tuned", "mgu"), _SMALL), folder)
        yield folder


@pytest.fixture(scope="module")
def page(run: Path) -> Iterator[Page]:
    assert main(["export", str(run), "--web"]) == 0
    with Browser() as browser:
        yield browser.open(run / "web" / "index.html")


@torch.no_grad()
def scores(opened: OpenRun, pixels: list[int]) -> torch.Tensor:
    scale, shift = pixel_scaling(opened.recipe.data)  # type: ignore[arg-type]
    image = torch.tensor(pixels).view(28, 1, 28) * scale + shift
    found: torch.Tensor = opened.trained(image)[0].softmax(0)
    return found


def drag(page: Page, places: list[tuple[float, float]]) -> None:
    box = page.evaluate(
        "(() => { const b = document.getElementById('drawing').getBoundingClientRect();"
        " return [b.left, b.top, b.width, b.height]; })()"
    )
    left, top, width, height = box
    for i, (x, y) in enumerate(places):
        kind = "mousePressed" if i == 0 else "mouseMoved"
        at = {"x": left + x * width, "y": top + y * height, "button": "left", "buttons": 1}
        page.call("Input.dispatchMouseEvent", type=kind, clickCount=1, **at)
    page.call("Input.dispatchMouseEvent", type="mouseReleased", clickCount=1, **at)


def shown(page: Page) -> list[float]:
    texts = page.evaluate("[...document.querySelectorAll('.score output')].map((e) => e.value)")
    return [float(text.removesuffix(" %")) / 100 for text in texts]


def assert_as_in_python(page: Page, opened: OpenRun, pixels: list[int]) -> None:
    wanted = scores(opened, pixels)
    answer = page.evaluate("document.getElementById('answer').value")
    assert int(answer) == int(wanted.argmax())
    torch.testing.assert_close(torch.tensor(shown(page)), wanted.cpu(), atol=6e-4, rtol=0)


@needs_clang
@needs_browser
@pytest.mark.browser
def test_a_drawn_digit_is_read(page: Page, run: Path) -> None:
    begun = page.evaluate("document.getElementById('seen').pixels")
    assert_as_in_python(page, open_run(run), begun)  # a test image, before anything is drawn
    drag(page, [(0.3, 0.2), (0.7, 0.2), (0.5, 0.5), (0.4, 0.85)])
    pixels = page.evaluate("document.getElementById('seen').pixels")
    assert len(pixels) == 28 * 28
    assert max(pixels) == 255
    rows = [row for row in range(28) if any(pixels[28 * row : 28 * row + 28])]
    assert 19 <= len(rows) <= 22  # fitted into 20 x 20; smoothing adds at most a row at each end
    assert_as_in_python(page, open_run(run), pixels)
    assert page.problems == []
    assert all(address.startswith(("file:", "data:")) for address in page.requests)


@needs_clang
@needs_browser
@pytest.mark.browser
def test_test_images_and_rows(page: Page, run: Path) -> None:
    opened = open_run(run)
    examples: list[dict[str, Any]] = page.evaluate(
        "JSON.parse(document.getElementById('data').textContent).examples"
    )
    assert len(examples) == 10
    for place in (0, 7):
        page.evaluate(f"document.querySelectorAll('#examples button')[{place}].click()")
        assert_as_in_python(page, opened, examples[place]["pixels"])
    # Before the last row the net has seen less: rows that it did not read change nothing.
    page.evaluate(
        "(() => { const t = document.getElementById('time'); t.value = 5;"
        " t.dispatchEvent(new Event('input')); })()"
    )
    top = examples[7]["pixels"][: 5 * 28]
    with torch.no_grad():
        scale, shift = pixel_scaling(opened.recipe.data)  # type: ignore[arg-type]
        begun = torch.tensor(top).view(5, 1, 28) * scale + shift
        wanted = opened.trained(begun)[0].softmax(0)
    torch.testing.assert_close(torch.tensor(shown(page)), wanted, atol=6e-4, rtol=0)
    lit = page.evaluate(
        "(() => { const c = document.querySelector('#maps canvas');"
        " const d = c.getContext('2d').getImageData(0, 0, c.width, 28).data;"
        " return [...Array(28).keys()].filter((t) => d[4 * t * c.width + 3] > 0).length; })()"
    )
    assert lit == 5
    assert page.problems == []


@needs_clang
def test_only_digits_by_rows(run: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    folder = tmp_path / "pixels"
    made = override(recipe("mnist_pixels", "tuned", "mgu"), [*_SMALL, "data.train=50", "length=1"])
    session.train(made, folder)
    assert main(["export", str(folder), "--web"]) == 2
    assert "mnist_pixels, not mnist_rows" in capsys.readouterr().err
    assert main(["export", str(run), "--web", "--quantise", "int8"]) == 2
    assert "--quantise is for --c" in capsys.readouterr().err
    assert not (folder / "web").exists()


def test_without_a_compiler(
    run: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    monkeypatch.setenv("PATH", "")
    assert main(["export", str(run), "--web", "-o", str(tmp_path / "web")]) == 2
    assert "--web needs clang" in capsys.readouterr().err
    assert not (tmp_path / "web").exists()


def test_onnx_of_a_run(run: Path, capsys: pytest.CaptureFixture[str]) -> None:
    runtime = pytest.importorskip("onnxruntime", reason="ONNX Runtime is not installed")
    pytest.importorskip("onnxscript", reason="onnxscript is not installed")
    assert main(["export", str(run), "--onnx"]) == 0
    assert str(run / "model.onnx") in capsys.readouterr().out
    opened = open_run(run)
    x = torch.randn(28, 3, 28)  # as many as the export never saw
    session_ = runtime.InferenceSession(run / "model.onnx", providers=["CPUExecutionProvider"])
    (ours,) = session_.run(None, {"inputs": x.numpy()})
    with torch.no_grad():
        torch.testing.assert_close(torch.from_numpy(ours), opened.trained(x), rtol=1e-5, atol=1e-5)
