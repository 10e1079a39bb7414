"""One folder of made-up runs of everything, and the report on it."""

from __future__ import annotations

from pathlib import Path
from unittest import mock

import pytest

from onegate.lab import report
from onegate.lab.pages.figure import Figure
from onegate.lab.report import figures
from onegate.lab.report.groups import grouped
from tests.lab.report import synthetic
from tests.lab.report.reading import ReadPage


@pytest.fixture(scope="session")
def everything(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder of runs."""
    root = tmp_path_factory.mktemp("everything") / "runs"
    synthetic.everything(root)
    return root


@pytest.fixture(scope="session")
def drawn(everything: Path) -> dict[str, Figure]:
    """The figures by name."""
    return {figure.name: figure for figure in figures.draw(grouped(synthetic.read(everything)))}


@pytest.fixture(scope="session")
def reported(everything: Path, drawn: dict[str, Figure]) -> Path:
    """The page's path; its figures, which take most of the time, are not drawn again."""
    with mock.patch.object(figures, "draw", return_value=list(drawn.values())):
        return report.write(everything, everything.parent / "report")


@pytest.fixture(scope="session")
def page(reported: Path) -> ReadPage:
    """The page, read back."""
    return ReadPage(reported.read_text())
