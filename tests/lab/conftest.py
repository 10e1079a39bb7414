"""What tests of the laboratory have in common."""

from __future__ import annotations

import pytest

from onegate.lab.report import committed


@pytest.fixture
def runs_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    """Reports without the results that come with onegate, which take seconds to draw."""
    monkeypatch.setattr(committed, "find", lambda: None)
