"""What tests of several commands share."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from onegate.lab.cli import main


@pytest.fixture
def refuses(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> Callable[[list[str], str], None]:
    """Asserts that a command fails with a message, and writes nothing into the current folder."""
    monkeypatch.chdir(tmp_path)

    def check(command: list[str], message: str) -> None:
        assert main(command) == 2
        assert message in capsys.readouterr().err
        assert list(tmp_path.iterdir()) == []

    return check
