"""Places: folders, and addresses that runs are copied to and taken up from."""

from __future__ import annotations

import os
import shutil
import signal
from pathlib import Path

import pytest

from onegate.lab.runs import run_name
from onegate.lab.sweep import PlaceError, place, worker
from onegate.lab.sweep.places import Address, Folder
from onegate.lab.sweep.worker import News
from tests.lab.sweep.made import recipes, same_bits

RECIPE = recipes(("mgu",), (0,), "length=6")[0]
NAME = run_name(RECIPE)


def no_news(news: News) -> None: ...


@pytest.fixture(params=["folder", "address"])
def where(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    folder = tmp_path / "runs"
    return str(folder) if request.param == "folder" else f"file://{folder}"


def test_files_are_stored_read_and_removed(where: str) -> None:
    here = place(where)
    assert type(here) is (Address if "://" in where else Folder)
    assert str(here) == where
    assert here.read("a.json") is None
    assert here.read("run/status.json") is None
    here.write("a.json", b"{}")
    assert here.read("a.json") == b"{}"
    here.remove("a.json")
    here.remove("a.json")
    assert here.read("a.json") is None


def test_status_is_read_even_if_it_is_damaged(where: str, tmp_path: Path) -> None:
    here = place(where)
    (tmp_path / "runs" / "r").mkdir(parents=True)
    status = tmp_path / "runs" / "r" / "status.json"
    for text, done in (('{"state": "done"}', True), ('{"state"', False), ("[1]", False)):
        status.write_text(text)
        assert here.is_done("r") is done
    assert not here.is_done("other")


def test_a_run_at_an_address_is_complete_there(where: str, tmp_path: Path) -> None:
    assert worker.run(RECIPE, NAME, place(where), 1, 0.0, no_news).state == "done"
    alone = tmp_path / "alone"
    assert worker.run(RECIPE, NAME, place(alone), 1, 60.0, no_news).state == "done"
    same_bits(tmp_path / "runs" / NAME, alone / NAME)
    assert not list((tmp_path / "runs").rglob(".*"))
    kept = list((tmp_path / "runs" / NAME / "checkpoints").glob("*.safetensors"))
    assert len(kept) <= 3


def test_a_run_at_an_address_goes_on_from_its_last_copy(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(
        "onegate.lab.train.session.Throttle", lambda _: type("", (), {"ready": lambda _: 1})()
    )
    there = place(f"file://{tmp_path / 'runs'}")
    copy = tmp_path / "copy"

    def lose(news: News) -> None:
        if "update 20/" in news.text:
            shutil.copytree(tmp_path / "runs", copy)

    assert worker.run(RECIPE, NAME, there, 1, 0.0, lose).state == "done"
    assert not place(copy).is_done(NAME)
    updates = [int(p.stem) for p in (copy / NAME / "checkpoints").glob("*.json")]
    assert max(updates) >= 19
    seen: list[str] = []
    again = place(f"file://{copy}")
    end = worker.run(RECIPE, NAME, again, 1, 60.0, lambda news: seen.append(news.text))
    assert end.state == "done"
    first = next(text for text in seen if text)
    assert f"update {max(updates) + 1}/36" in first
    same_bits(copy / NAME, tmp_path / "runs" / NAME)


def test_a_run_that_was_stopped_is_at_its_address(tmp_path: Path) -> None:
    there = place(f"file://{tmp_path}")
    sent: list[int] = []

    def stop(news: News) -> None:
        if news.text and not sent:
            sent.append(signal.SIGTERM)
            os.kill(os.getpid(), signal.SIGTERM)

    stopped = worker.run(RECIPE, NAME, there, 1, 60.0, stop)
    assert stopped.state == "stopped"
    assert there.status(NAME)["state"] == "stopped"


def test_places_that_cannot_be_used_are_named(tmp_path: Path) -> None:
    with pytest.raises(PlaceError, match=r"nonsense://x cannot be opened: .*onegate\[ray\]"):
        place("nonsense://x")
    (tmp_path / "file").write_text("")
    with pytest.raises(
        PlaceError, match=r"cannot be written: .* choose another folder with --runs"
    ):
        place(tmp_path / "file").write("a.json", b"")
