"""One folder of made-up runs of everything, and the report on it."""

from __future__ import annotations

from pathlib import Path

import pytest

from onegate import report
from tests.report import synthetic
from tests.report.reading import ReadPage


@pytest.fixture(scope="session")
def everything(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder of runs."""
    root = tmp_path_factory.mktemp("everything") / "runs"
    synthetic.everything(root)
    return root


@pytest.fixture(scope="session")
def reported(everything: Path) -> Path:
    """The page's path."""
    return report.write(everything, everything.parent / "report")


@pytest.fixture(scope="session")
def page(reported: Path) -> ReadPage:
    """The page, read back."""
    return ReadPage(reported.read_text())
