"""`onegate bench` from the command line, on tiny shapes for no time."""

from __future__ import annotations

import contextlib
import json
from pathlib import Path

import pytest
import torch

from onegate.engines.cpu.native import library
from onegate.lab.bench import shapes
from onegate.lab.bench.outcomes import Timings, run_shape
from onegate.lab.bench.verdicts import BY_SHAPE, UNITS_NEEDED
from onegate.lab.cli import bench, main


@pytest.fixture(autouse=True)
def tiny_paper_shapes(monkeypatch: pytest.MonkeyPatch) -> None:
    """The paper's shapes and the sweeps, but small."""
    small = {name: shapes.LayerShape(name, 2, 2, 2, 3) for name in shapes.PAPER}
    monkeypatch.setattr(bench, "PAPER", small)
    monkeypatch.setattr(
        shapes,
        "SWEEPS",
        {"steps": (1, 2, 3), "batch": (1, 2), "hidden": (2, 3), "single_batch": (1, 2)},
    )


def contestants(path: Path) -> list[set[str]]:
    """Who was measured or skipped, by shape."""
    found = json.loads(path.read_text(encoding="utf-8"))
    return [
        {result["contestant"] for result in shape["results"]} | set(shape["skipped"])
        for shape in found["shapes"]
    ]


def test_default_is_mgu_and_all_peers_on_the_papers_shapes(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / "speed.json"
    assert main(["bench", "--seconds", "0", "--json", str(path)]) == 0
    everybody = {
        "mgu fused", "mgu reference", "torch.nn.GRU", "torch.nn.LSTM", "torch.nn.RNN",
        "torchrecurrent MGU", "Flax MGUCell (jit)",
    }  # fmt: skip
    assert contestants(path) == [everybody] * len(shapes.PAPER)
    shown = capsys.readouterr().out
    for name in shapes.PAPER:
        assert f"{name}: T 2, B 2, in 2, 3 neurons" in shown
    for name in everybody:
        assert name in shown


def test_units_shapes_memory_and_plot(tmp_path: Path) -> None:
    path, picture = tmp_path / "speed.json", tmp_path / "speed.svg"
    arguments = ["bench", "--shape", "3,2,2,4", "2,2,2,3,2,bi", "--units", "janet", "lstm"]
    arguments += ["--seconds", "0", "--memory", "--json", str(path), "--plot", str(picture)]
    assert main(arguments) == 0
    for names in contestants(path):
        assert {"janet fused", "janet reference", "lstm fused"} <= names
        assert "mgu fused" not in names
    found = json.loads(path.read_text(encoding="utf-8"))
    held = found["shapes"][0]["held_bytes"]
    assert held["torch.nn.GRU"] > 0
    assert set(held) == {result["contestant"] for result in found["shapes"][0]["results"]}
    assert picture.read_text(encoding="utf-8").startswith("<?xml")


def test_check_brings_what_the_figures_need_and_only_strict_fails(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "speed.json"
    arguments = ["bench", "--check", "--shape", "imdb", "--seconds", "0", "--json", str(path)]
    # Nobody reaches ten times the peak.
    monkeypatch.setitem(BY_SHAPE, "imdb", {"share of the sgemm peak": 10.0})
    assert main(arguments) == 0
    assert {f"{unit} fused" for unit in UNITS_NEEDED} <= contestants(path)[0]
    assert "not measured (the shape was not run)" in capsys.readouterr().out
    if library().problem is None:
        assert main([*arguments, "--strict"]) == 1


def test_sweep_alone_runs_no_other_shape(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / "speed.json"
    assert main(["bench", "--sweep", "steps", "--seconds", "0", "--json", str(path)]) == 0
    found = json.loads(path.read_text(encoding="utf-8"))
    assert found["shapes"] == []
    (sweep,) = found["sweeps"]
    assert [shape["shape"]["steps"] for shape in sweep["shapes"]] == [1, 2, 3]
    assert "largest ratio to torch.nn.GRU" in capsys.readouterr().out


def test_threads_are_set(tmp_path: Path) -> None:
    before = torch.get_num_threads()
    path = tmp_path / "speed.json"
    try:
        arguments = ["--threads", "2", "--shape", "2,2,2,3", "--seconds", "0", "--json", str(path)]
        assert main(["bench", *arguments]) == 0
        assert json.loads(path.read_text(encoding="utf-8"))["machine"]["threads"] == 2
    finally:
        torch.set_num_threads(before)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--shape", "3,2"], "is not a shape"),
        (["--units", "mguu"], "did you mean 'mgu'"),
        (["--plot", "speed.txt"], "speed.txt should end in .svg"),
        (["--json", "not/there.json"], "not/there.json cannot be written: there is no folder not"),
        (["--plot", "not/there.png"], "not/there.png cannot be written: there is no folder not"),
        (["epochs", "--json", "not/there.json"], "there is no folder not"),
        (["epochs", "--units", "mgu"], "bench epochs takes --threads and --json alone"),
        (["baselines", "--check"], "bench baselines takes --threads and --json alone"),
    ],
)
def test_bad_arguments_are_refused_before_anything_runs(
    arguments: list[str],
    message: str,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def measured(*_: object, **__: object) -> Timings:
        raise AssertionError("it was measured")

    monkeypatch.setattr(bench, "run_shape", measured)
    assert main(["bench", *arguments]) == 2
    assert message in capsys.readouterr().err


@pytest.mark.parametrize("arguments", [["--seconds", "-1"], ["--threads", "0"], ["--sweep", "x"]])
def test_bad_numbers_are_refused(arguments: list[str]) -> None:
    with pytest.raises(SystemExit):
        main(["bench", *arguments])


def test_a_run_that_is_broken_off_leaves_the_shapes_that_were_measured(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def until_the_second(shape: shapes.LayerShape, *args: object, **kwargs: object) -> Timings:
        if shape.batch == 3:
            raise KeyboardInterrupt
        return run_shape(shape, *args, **kwargs)  # type: ignore[arg-type]

    monkeypatch.setattr(bench, "run_shape", until_the_second)
    path = tmp_path / "speed.json"
    with contextlib.suppress(KeyboardInterrupt):
        main(["bench", "--shape", "2,2,2,3", "2,3,2,3", "--seconds", "0", "--json", str(path)])
    assert [s["shape"]["batch"] for s in json.loads(path.read_text("utf-8"))["shapes"]] == [2]
