"""What is refused before work is sent to a cluster, and connections that cannot be made."""

from __future__ import annotations

import contextlib
import socket
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import pytest

import onegate
from onegate.lab.cli import main
from onegate.lab.sweep import cluster, place, preflight
from onegate.lab.sweep.cluster import connected
from onegate.lab.sweep.preflight import ClusterError, Node, look_around

NODES = [Node("node a", "1", {"CPU": 4.0}), Node("node b", "2", {"CPU": 8.0, "GPU": 1.0})]


def ask_alike(nodes: Sequence[Node], address: str, probe: str) -> Mapping[str, Mapping[str, Any]]:
    return {node.name: look_around(address, probe) for node in nodes}


def test_nodes_alike_are_accepted_and_nothing_is_left_behind(tmp_path: Path) -> None:
    preflight.check(NODES, place(tmp_path), ask_alike)
    assert list(tmp_path.iterdir()) == []
    preflight.check(NODES, place(f"file://{tmp_path}"), ask_alike)
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize(
    ("answer", "message"),
    [
        ({"missing": "No module named 'onegate'"}, "node b: onegate cannot be imported there"),
        ({"onegate": "9.9"}, "node b: onegate is 9.9 there and .* install the same version"),
        ({"torch": "1.0"}, r"node b: torch is 1\.0 there and"),
        ({"the code of onegate": "x"}, "node b: the code of onegate is x there and"),
        ({"place": "it does not see"}, "node b: results cannot land in .*: it does not see; name"),
    ],
)
def test_a_node_that_differs_is_named(answer: dict[str, str], message: str, tmp_path: Path) -> None:
    def ask(nodes: Sequence[Node], address: str, probe: str) -> Mapping[str, Mapping[str, Any]]:
        answers = dict(ask_alike(nodes, address, probe))
        if "missing" in answer:
            answers["node b"] = answer
        elif "place" in answer:
            answers["node b"] = {**answers["node b"], **answer}
        else:
            versions = {**answers["node b"]["versions"], **answer}
            answers["node b"] = {**answers["node b"], "versions": versions}
        return answers

    with pytest.raises(ClusterError, match=message) as caught:
        preflight.check(NODES, place(tmp_path), ask)
    assert "node a" not in str(caught.value)
    assert list(tmp_path.iterdir()) == []


def test_folders_of_the_same_name_on_other_machines_are_told_apart(tmp_path: Path) -> None:
    """Each node sees a probe, but not the one folder."""

    def ask(nodes: Sequence[Node], address: str, probe: str) -> Mapping[str, Mapping[str, Any]]:
        own = tmp_path / "own"
        place(own).write(probe, b"")
        answers = ask_alike(nodes[:1], address, probe)
        return {**answers, nodes[1].name: look_around(str(own), probe)}

    with pytest.raises(ClusterError, match=r"1 of 2 nodes see a .* of their own"):
        preflight.check(NODES, place(tmp_path / "runs"), ask)


def test_what_a_node_cannot_see_or_open(tmp_path: Path) -> None:
    assert look_around(str(tmp_path), "nothing")["place"] == "it does not see what is written there"
    assert "cannot be opened" in look_around("nonsense://x", "probe")["place"]


@pytest.mark.parametrize(
    ("wanted", "message"),
    [
        ({"CPU": 8.0}, None),
        ({"CPU": 4.0, "GPU": 1.0}, None),
        ({"CPU": 9.0}, "asks for 9 CPU, but the largest node, node b, has 8 CPU"),
        ({"CPU": 1.0, "GPU": 2.0}, "asks for 1 CPU and 2 GPU, .* has 8 CPU, 1 GPU"),
    ],
)
def test_resources(wanted: dict[str, float], message: str | None) -> None:
    if message is None:
        preflight.check_resources(NODES, wanted)
        return
    with pytest.raises(ClusterError, match=message):
        preflight.check_resources(NODES, wanted)


def test_no_node() -> None:
    with pytest.raises(ClusterError, match="no node that is alive"):
        preflight.check_resources([], {"CPU": 1.0})


@pytest.mark.parametrize("kind", ["", "ray://"])
def test_an_address_where_nobody_answers(
    kind: str, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    pytest.importorskip("ray")
    with socket.socket() as taken:  # bound, but nobody listens
        taken.bind(("127.0.0.1", 0))
        address = f"{kind}127.0.0.1:{taken.getsockname()[1]}"
        assert main(["sweep", "adding", "--on", address, "--runs", str(tmp_path / "r")]) == 2
    error = capsys.readouterr().err
    assert f"no Ray cluster can be reached at {address}: Connection refused. Is it runn" in error
    assert not (tmp_path / "r").exists()


@pytest.mark.parametrize("address", ["somewhere", "ray://somewhere", "host:port"])
def test_an_address_that_is_none(address: str) -> None:
    pytest.importorskip("ray")
    with (
        pytest.raises(ClusterError, match="expected ray, host:port or ray://host:port"),
        connected(address),
    ):
        pass


def test_without_ray(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "ray", None)
    with pytest.raises(ClusterError, match=r"pip install 'onegate\[ray\]'"), connected("ray"):
        pass


def test_ray_on_this_machine_is_started_if_there_is_none() -> None:
    called: list[tuple[str, dict[str, Any]]] = []

    class Ray:
        def init(self, address: str, **options: Any) -> None:
            called.append((address, options))
            if address == "auto":
                raise ConnectionError("no cluster")

    cluster._init_here(Ray(), {"log_to_driver": False})
    assert called == [
        ("auto", {"log_to_driver": False}),
        ("local", {"include_dashboard": False, "log_to_driver": False}),
    ]


@pytest.mark.parametrize(
    ("problems", "tries"),
    [
        ([], 1),
        (["Starting Ray client server failed. See its log"], 2),
        (["Starting Ray client server failed."] * 3, 4),
        (["Starting Ray client server failed.", "Proxy failed to Connect to backend!"], 3),
        (["Starting Ray client server failed."] * 4, 4),
        (["versions differ"], 1),
    ],
)
def test_a_client_s_server_that_does_not_start_is_asked_for_again(
    problems: list[str], tries: int
) -> None:
    called: list[str] = []

    class Ray:
        def init(self, address: str, **_: Any) -> None:
            called.append(address)
            if len(called) <= len(problems):
                text = problems[len(called) - 1]
                raise ConnectionAbortedError(f"Initialization failure from server:\n{text}")

    with contextlib.nullcontext() if len(problems) < tries else pytest.raises(ConnectionError):
        cluster._init_at(Ray(), "ray://10.0.0.1:10001", {})
    assert called == ["ray://10.0.0.1:10001"] * tries


def test_the_position_of_a_run_is_its_last_whole_line() -> None:
    lines = b'{"update": 1, "epoch": 0.5, "valid_mse": 0.25}\n{"update": 2, "ep'
    assert cluster._position(lines) == "epoch 0.50  valid_mse 0.25"
    assert cluster._position(b"") == ""


@pytest.mark.parametrize("path", ["ops.py", "nn/layers.py", "lab/train/loop.py"])
def test_code_that_runs_go_through_is_told_apart(
    path: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(onegate, "__file__", str(tmp_path / "__init__.py"))
    own, apart = tmp_path / path, tmp_path / "lab" / "report" / "page.py"
    for folder in (own.parent, apart.parent):
        folder.mkdir(parents=True, exist_ok=True)
    own.write_text("1")
    apart.write_text("1")
    first = preflight.versions()
    apart.write_text("2")
    assert preflight.versions() == first
    own.write_text("2")
    assert preflight.versions() != first
