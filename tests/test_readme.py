"""What the README says can be run, and is so; what the pages point to is there."""

from __future__ import annotations

import re
import runpy
from pathlib import Path
from typing import Any

import pytest

import onegate
from onegate.lab.cli import COMMANDS

ROOT = Path(__file__).parents[1]
README = ROOT / "README.md"
pytestmark = pytest.mark.skipif(not README.exists(), reason="the README is in the repository alone")


@pytest.fixture
def units() -> Any:
    """The registry is left as it was found."""
    before = dict(onegate.UNITS)
    yield onegate.UNITS
    onegate.UNITS.clear()
    onegate.UNITS.update(before)


def test_its_python_runs(units: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    blocks = re.findall(r"```python\n(.*?)```", README.read_text(), re.S)
    assert blocks
    names: dict[str, Any] = {"__name__": "readme"}
    for block in blocks:
        exec(compile(block, str(README), "exec"), names)
    assert names["out"].shape == (50, 16, 200)
    names["fast"](names["torch"].randn(5, 2, 28))
    assert names["fast"].engine_report() == names["layer"].engine_report()


def test_it_counts_the_units() -> None:
    ours = [u for u in onegate.UNITS.values() if type(u).__module__.startswith("onegate.units.")]
    assert f"{len(ours)} units are there" in README.read_text()


def test_its_names_and_commands_exist() -> None:
    text = README.read_text()
    for name in re.findall(r"`onegate\.(\w+)", text):
        assert hasattr(onegate, name), name
    assert {*re.findall(r"`onegate ([a-z]+)", text)} <= {*COMMANDS}


@pytest.mark.parametrize(
    "page", [README, *sorted((ROOT / "docs").glob("*.md"))], ids=lambda p: p.name
)
def test_its_links_lead_somewhere(page: Path) -> None:
    for target in re.findall(r"\]\(([^)#\s]+)[^)]*\)", page.read_text()):
        if "://" not in target:
            assert (page.parent / target).exists(), target


def test_every_public_name_is_on_the_api_page() -> None:
    page = runpy.run_path(str(ROOT / "docs" / "api_page.py"))["api_page"]()
    assert [name for name in onegate.__all__ if not re.search(rf"\b{name}\b", page)] == []
