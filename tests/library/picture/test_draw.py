"""Pictures: what stands in them, that nothing covers anything, and the files they become."""

from __future__ import annotations

import functools
import itertools
import os
import subprocess
import sys
import tempfile
import xml.etree.ElementTree as ET
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.colors import to_hex
from matplotlib.figure import Figure
from matplotlib.image import imread
from matplotlib.patches import FancyBboxPatch, PathPatch
from matplotlib.text import Text
from matplotlib.transforms import Bbox

from onegate.language import Affine, Unit, UnitError, sigmoid, tanh
from onegate.picture.diagram import diagram
from onegate.picture.draw import DARK, LIGHT, draw, layouts, save, svg
from onegate.tracing import trace
from onegate.units import UNITS
from tests.library.comparing import X_ALONE


class Own(Unit):
    """A unit that nobody has registered."""

    title = "A unit of one's own"
    W_a = Affine()
    W_h = Affine()

    def step(self, x: Any, h: Any) -> Any:
        a = sigmoid(self.W_a[h, x])
        candidate = tanh(self.W_h[x])
        return h + a * (candidate - h)


class LongNames(Unit):
    """A unit whose author does not like letters."""

    states = ("memory", "output_so_far")
    W_forgetting = Affine()
    writing_matrix = Affine()
    W_seen = Affine()

    def step(self, x: Any, memory: Any, output_so_far: Any) -> Any:
        forgetting = sigmoid(self.W_forgetting[memory, output_so_far, x])
        seen_before = self.W_seen[output_so_far]
        written_now = self.writing_matrix[x] * seen_before
        candidate = tanh(memory) * seen_before
        return forgetting * memory + written_now, candidate + output_so_far


@functools.cache
def drawn(*names: str) -> Figure:
    return draw(*names)


def texts(figure: Figure) -> list[str]:
    return [text.get_text() for text in figure.axes[0].texts]


def extents(figure: Figure) -> dict[Text, Bbox]:
    """The ink of every text, in the points in which the picture is laid out."""
    canvas: Any = FigureCanvasAgg(figure)
    renderer = canvas.get_renderer()
    back = figure.axes[0].transData.inverted()
    return {
        text: Bbox(back.transform(text.get_window_extent(renderer).get_points()))
        for text in figure.axes[0].texts
    }


def overlap(one: Bbox, other: Bbox) -> float:
    """How deep two rectangles lie in each other; negative where they are apart."""
    return float(
        min(
            min(one.xmax, other.xmax) - max(one.xmin, other.xmin),
            min(one.ymax, other.ymax) - max(one.ymin, other.ymin),
        )
    )


@pytest.mark.parametrize("name", X_ALONE)
def test_every_box_is_written_into_the_picture(name: str) -> None:
    figure = drawn(name)
    written = texts(figure)
    boxes = diagram(trace(UNITS[name], 28, 100)).boxes
    expected = [
        part for b in boxes for part in (b.text, r",\,".join(b.parameters), b.label) if part
    ]
    signs = [text for text in written if text in ("$+$", "$-$")]
    marked = [
        n
        for n in trace(UNITS[name], 28, 100).nodes
        if n.op in ("sub", "div") and all(a.op != "constant" for a in n.args)
    ]  # a difference has a plus and a minus beside it, a ratio a sign at what it divides by
    assert len(figure.axes[0].texts) == len(expected) + 2 + sum(1 + (n.op == "sub") for n in marked)
    for part in expected:
        assert f"${part}$" in written or f"${part}$" in signs
    computing = [b for b in boxes if b.kind in ("activation", "map", "operation")]
    rectangles = [p for p in figure.axes[0].patches if isinstance(p, FancyBboxPatch)]
    assert len(rectangles) == len(computing)


@pytest.mark.parametrize("name", X_ALONE)
def test_no_text_is_covered(name: str) -> None:
    assert_no_text_is_covered(drawn(name))


@pytest.mark.parametrize("unit", [Own(), LongNames()], ids=lambda unit: unit.name)
def test_no_text_is_covered_in_a_unit_of_ones_own(unit: Unit) -> None:
    assert_no_text_is_covered(draw(unit))


def assert_no_text_is_covered(figure: Figure) -> None:
    """Not by another text, not by a wire, not by a box other than its own."""
    inks = extents(figure)
    for one, other in itertools.combinations(inks.values(), 2):
        assert overlap(one, other) < 1.0
    boxes = [Bbox(p.get_path().get_extents(p.get_patch_transform()).get_points())
             for p in figure.axes[0].patches if isinstance(p, FancyBboxPatch)]  # fmt: skip
    for ink, box in itertools.product(inks.values(), boxes):
        inside = box.xmin < ink.xmin and ink.xmax < box.xmax
        assert inside or overlap(ink, box) < 1.0
    for ink, wire in itertools.product(inks.values(), wires(figure)):
        assert overlap(ink, wire) < 0.5


def wires(figure: Figure) -> list[Bbox]:
    """The straight parts of all wires, with two points for their thickness."""
    found: list[Bbox] = []
    for patch in figure.axes[0].patches:
        if isinstance(patch, PathPatch):
            points = np.asarray(patch.get_path().vertices, float)
            for pair in itertools.pairwise(points):
                found.append(Bbox([np.minimum(*pair) - 1, np.maximum(*pair) + 1]))
    return found


def test_everything_is_on_the_paper() -> None:
    for names in (("simple",), ("lstm_fgr",), ("gru", "lstm", "lstm_coupled", "mgu")):
        figure = drawn(*names)
        right, bottom = figure.axes[0].get_xlim()[1], figure.axes[0].get_ylim()[0]
        for ink in extents(figure).values():
            assert 0 <= ink.xmin <= ink.xmax <= right
            assert 0 <= ink.ymin <= ink.ymax <= bottom


def test_titles_and_numbers_of_parameters() -> None:
    written = texts(draw("gru", "mgu", input_size=1, hidden_size=100))
    assert {"Gated Recurrent Unit", "Minimal Gated Unit"} <= set(written)
    assert "gru: 30,600 parameters (input 1, hidden 100)" in written
    assert "mgu: 20,400 parameters (input 1, hidden 100)" in written


def test_highways_of_a_line_of_units_are_level() -> None:
    figure = drawn("gru", "lstm", "lstm_coupled", "mgu")
    at = {
        state: [text.get_position() for text in figure.axes[0].texts if text.get_text() == state]
        for state in ("$h_t$", "$c_t$")
    }
    gru, lstm = at["$h_t$"][0], at["$c_t$"][0]
    coupled, mgu = at["$c_t$"][1], at["$h_t$"][-1]
    assert gru[1] == pytest.approx(lstm[1])
    assert coupled[1] == pytest.approx(mgu[1])
    assert gru[0] < lstm[0]
    assert gru[1] < mgu[1]


def test_names_units_and_graphs_are_one() -> None:
    graph = trace(UNITS["mgu"], 28, 100)
    assert texts(draw(graph)) == texts(draw(UNITS["mgu"])) == texts(drawn("mgu"))


def test_a_unit_of_ones_own(tmp_path: Path) -> None:
    figure = draw(Own())
    assert {"A unit of one's own", "$a$", r"$\tilde{h}$"} <= set(texts(figure))
    save(figure, tmp_path / "own.svg")
    ET.parse(tmp_path / "own.svg")


def test_a_difference_shows_what_is_taken_away() -> None:
    """A + stands where the candidate enters, a - where h does; the box itself says minus."""
    graph = trace(Own(), 28, 100)
    figure, layout = draw(graph), layouts([graph])[0]
    boxes = layout.diagram.boxes
    place = next(p for p, box in enumerate(boxes) if box.op == "sub")
    written = [t for t in figure.axes[0].texts if t.get_text() in ("$-$", "$+$")]
    small = {t.get_text(): t for t in written if t.get_fontsize() == 10}
    middle = next(t for t in written if t.get_text() == "$-$" and t is not small["$-$"])
    ends = {boxes[w.source].label: w.side for w in layout.wires if w.target == place}
    assert set(ends) == {r"\tilde{h}", ""}
    for label, side in ends.items():
        sign = small["$+$" if label else "$-$"].get_position()
        across, down = sign[0] - middle.get_position()[0], sign[1] - middle.get_position()[1]
        assert {"left": across < -13, "above": down < -13, "below": down > 13}[side]


def test_dark_and_light() -> None:
    for dark, theme in ((False, LIGHT), (True, DARK)):
        figure = draw("mgu", dark=dark)
        assert to_hex(figure.get_facecolor()) == theme.paper
        colours = {to_hex(text.get_color()) for text in figure.axes[0].texts}
        assert colours <= {theme.ink, theme.faint, *theme.lines.values()}


def test_svg_is_well_formed_and_of_vectors(tmp_path: Path) -> None:
    path = tmp_path / "mgu.svg"
    save(drawn("mgu"), path)
    root = ET.parse(path).getroot()
    tags = {element.tag.rpartition("}")[2] for element in root.iter()}
    assert root.tag.endswith("svg")
    assert "path" in tags
    assert not tags & {"image", "text", "date"}


@pytest.mark.parametrize("ending", ["svg", "pdf", "png"])
def test_the_same_picture_is_the_same_file(tmp_path: Path, ending: str) -> None:
    for name in ("one", "two"):
        save(draw("mgu"), tmp_path / f"{name}.{ending}")
    one, two = (tmp_path / f"{name}.{ending}" for name in ("one", "two"))
    assert one.read_bytes() == two.read_bytes()


def test_the_same_file_in_every_process(tmp_path: Path) -> None:
    code = "import sys; from onegate.picture.draw import draw, save; save(draw('gru'), sys.argv[1])"
    for seed in "12":
        command = [sys.executable, "-c", code, str(tmp_path / f"{seed}.svg")]
        subprocess.run(command, check=True, env={**os.environ, "PYTHONHASHSEED": seed})
    assert (tmp_path / "1.svg").read_bytes() == (tmp_path / "2.svg").read_bytes()


def test_png_is_a_picture_with_its_colours(tmp_path: Path) -> None:
    save(drawn("mgu"), tmp_path / "mgu.PNG")
    pixels = imread(tmp_path / "mgu.PNG", format="png")
    assert pixels.shape[0] > 300
    assert pixels.shape[1] > 600
    colours = np.unique(pixels[..., :3].reshape(-1, 3), axis=0).tolist()
    found = {to_hex((red, green, blue)) for red, green, blue in colours}
    assert {LIGHT.paper, LIGHT.fills["gate"], LIGHT.fills["activation"], LIGHT.ink} <= found


def test_a_failure_leaves_the_old_file_and_nothing_else(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "mgu.svg"
    path.write_text("old")
    figure = draw("simple")

    def fail(_: int) -> None:
        raise OSError("no space left")

    monkeypatch.setattr("os.fsync", fail)
    with pytest.raises(OSError, match="no space left"):
        save(figure, path)
    assert path.read_text() == "old"
    assert list(tmp_path.iterdir()) == [path]


def test_errors_say_what_to_do(tmp_path: Path) -> None:
    with pytest.raises(UnitError, match="no unit is called 'mug'; did you mean 'mgu'"):
        draw("mug")
    with pytest.raises(ValueError, match="at least one unit"):
        draw()
    with pytest.raises(ValueError, match="input_size=0"):
        draw("mgu", input_size=0)
    with pytest.raises(ValueError, match=r"gru_d: .* too many wires to be drawn; `onegate units"):
        draw("gru_d")
    figure = drawn("simple")
    with pytest.raises(ValueError, match=r"mgu\.txt should end in \.svg or \.pdf or"):
        save(figure, tmp_path / "mgu.txt")
    with pytest.raises(FileNotFoundError, match="there is no folder"):
        save(figure, tmp_path / "missing" / "mgu.svg")
    (tmp_path / "folder.svg").mkdir()
    with pytest.raises(IsADirectoryError, match="it is a folder"):
        save(figure, tmp_path / "folder.svg")


def test_a_read_only_folder_is_an_error() -> None:
    figure, users = drawn("simple"), os.getresuid()
    with tempfile.TemporaryDirectory() as folder:  # not below pytest's, which is its user's alone
        Path(folder).chmod(0o555)
        if users[1] == 0:  # who may write everywhere
            os.setresuid(65534, 65534, 0)
        try:
            with pytest.raises(PermissionError, match="read-only"):
                save(figure, Path(folder, "mgu.svg"))
        finally:
            os.setresuid(*users)


def test_the_text_of_a_picture_is_that_of_its_file(tmp_path: Path) -> None:
    save(draw("mgu"), tmp_path / "mgu.svg")
    assert svg(draw("mgu")) == (tmp_path / "mgu.svg").read_text(encoding="utf-8")
