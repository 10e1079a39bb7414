"""The notebooks of the documentation run, and are committed without outputs."""

from __future__ import annotations

from pathlib import Path

import pytest

NOTEBOOKS = sorted((Path(__file__).parents[1] / "docs" / "notebooks").glob("*.ipynb"))
nbformat = pytest.importorskip("nbformat", reason="needs nbformat to read notebooks")
nbclient = pytest.importorskip("nbclient", reason="needs nbclient to run notebooks")


@pytest.mark.slow
@pytest.mark.parametrize("path", NOTEBOOKS, ids=lambda path: path.stem)
def test_it_runs(path: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    pytest.importorskip("ipykernel", reason="needs ipykernel to run notebooks")
    monkeypatch.setenv("PYTHONWARNINGS", "error::DeprecationWarning:onegate")
    monkeypatch.setenv("OMP_NUM_THREADS", "1")  # threads that wait for each other stall under load
    notebook = nbformat.read(path, as_version=4)
    nbclient.NotebookClient(
        notebook, timeout=600, kernel_name="python3", resources={"metadata": {"path": tmp_path}}
    ).execute()


@pytest.mark.parametrize("path", NOTEBOOKS, ids=lambda path: path.stem)
def test_it_has_no_outputs(path: Path) -> None:
    notebook = nbformat.read(path, as_version=4)
    cells = [cell for cell in notebook.cells if cell.cell_type == "code"]
    assert cells
    assert not [cell for cell in cells if cell.outputs or cell.execution_count is not None]


def test_there_are_three() -> None:
    assert [path.stem for path in NOTEBOOKS] == ["compare-units", "faster-gru", "see-a-gate"]
