"""Sweeps on a real Ray cluster of three nodes: deaths, Ctrl-C, and what is refused beforehand."""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from onegate.lab.recipes import Recipe
from onegate.lab.runs import RunFolder, run_name
from onegate.lab.sweep import Plan, local, place
from tests.lab.sweep.made import SETTINGS, recipes, same_bits
from tests.lab.sweep.ray_cluster import Node, RayCluster

pytest.importorskip("ray")
pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(sys.platform != "linux", reason="loopback nodes need Linux"),
]

LENGTH = "length=40"
SEEDS = tuple(range(6))
_SECONDS = 600


@pytest.fixture(scope="module")
def cluster() -> Iterator[RayCluster]:
    made = RayCluster()
    try:
        for _ in range(3):
            made.start()
        yield made
    finally:
        made.stop()


@pytest.fixture(scope="module")
def undisturbed(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The same sweep on this machine, which nothing disturbs."""
    folder = tmp_path_factory.mktemp("undisturbed")
    plan = Plan(tuple(asked()), place(folder), 1)
    assert local._one_after_the_other(plan, list(plan.runs), lambda _: None) == 0
    return folder


def asked() -> list[Recipe]:
    return recipes(("mgu", "gru"), SEEDS, LENGTH)


def command(on: str, runs: str | Path, *more: str) -> list[str]:
    settings = [word for s in (*SETTINGS, LENGTH) for word in ("--set", s)]
    seeds = [str(seed) for seed in SEEDS]
    return [sys.executable, "-m", "onegate", "sweep", "adding", "--units", "mgu", "gru",
            "--hidden", "5", "--seeds", *seeds, *settings, "--runs", str(runs), "--on", on,
            "--checkpoint-every", "0.1", *more]  # fmt: skip


def start(cluster: RayCluster, arguments: list[str]) -> subprocess.Popen[str]:
    return subprocess.Popen(
        arguments, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, cwd="/",
        env={**os.environ, **cluster.environment},
    )  # fmt: skip


def end(process: subprocess.Popen[str]) -> str:
    output, _ = process.communicate(timeout=_SECONDS)
    return output


class Victim:
    """A run in the middle, on one of the nodes: its worker's process, and its metrics so far."""

    def __init__(self, nodes: list[Node], runs: Path, driver: subprocess.Popen[str]) -> None:
        deadline = time.monotonic() + _SECONDS
        while True:
            assert driver.poll() is None, end(driver)
            assert time.monotonic() < deadline
            for node in nodes:
                for pid, name in running(node):
                    folder = RunFolder(runs / name)
                    kept = folder.checkpoints.updates() if folder.has_run() else []
                    lines = [m for m in folder.metrics() if kept and m["update"] < kept[-1]]
                    if lines and not folder.is_done():
                        self.node, self.pid, self.folder, self.lines = node, pid, folder, lines
                        return
            time.sleep(0.01)

    def was_taken_up_where_it_was(self) -> None:
        """Lines before the checkpoint still have the times of the first attempt."""
        assert self.folder.is_done()
        assert self.folder.metrics()[: len(self.lines)] == self.lines


def running(node: Node) -> Iterator[tuple[int, str]]:
    for pid in node.processes("ray::adding-"):
        with contextlib.suppress(OSError):
            title = (Path("/proc") / str(pid) / "cmdline").read_bytes()
            yield pid, title.decode().strip("\0 ").removeprefix("ray::").split()[0].strip("()")


def finished(runs: Path) -> int:
    return sum(RunFolder(folder).is_done() for folder in runs.glob("adding-*"))


def test_through_ray_s_client_to_an_address(cluster: RayCluster, tmp_path: Path) -> None:
    there = tmp_path / "there"
    arguments = command(cluster.client, f"file://{there}", "--seeds", "0", "--units", "mgu")
    driver = start(cluster, [*arguments, "--set", "length=2"])
    told = end(driver)
    assert driver.returncode == 0, told
    assert finished(there) == 1
    assert not [path for path in there.iterdir() if path.name.startswith(".")]


def test_a_worker_and_a_node_die_and_all_runs_end_in_the_same_bits(
    cluster: RayCluster, undisturbed: Path, tmp_path: Path
) -> None:
    runs = tmp_path / "runs"
    driver = start(cluster, command(cluster.address, runs))
    Victim(cluster.nodes, runs, driver)
    # Ctrl-C: what runs is saved, and the same command goes on.
    driver.send_signal(signal.SIGINT)
    told = end(driver)
    assert driver.returncode == 128 + signal.SIGINT, told
    assert "of 12 runs are finished, the others are saved; the same command goes on" in told
    assert "Traceback" not in told
    done = finished(runs)
    states = {RunFolder(folder).status().get("state") for folder in runs.glob("adding-*")}
    assert "stopped" in states
    assert states <= {"done", "stopped", None}  # None: it was just loading its data
    driver = start(cluster, command(cluster.address, runs))
    first = Victim(cluster.nodes[:2], runs, driver)
    os.kill(first.pid, signal.SIGKILL)
    # The last node dies with everything on it.
    second = Victim(cluster.nodes[2:], runs, driver)
    second.node.kill()
    told = end(driver)
    assert driver.returncode == 0, told
    assert f"12 runs, {done} finished; 3 side by side with 1 thread each" in told
    assert "\n12 done | " in told
    first.was_taken_up_where_it_was()
    second.was_taken_up_where_it_was()
    for recipe in asked():
        name = run_name(recipe)
        same_bits(runs / name, undisturbed / name)


def test_what_no_node_has_is_refused(cluster: RayCluster, tmp_path: Path) -> None:
    driver = start(cluster, command(cluster.address, tmp_path, "--threads", "3"))
    told = end(driver)
    assert driver.returncode == 2
    assert "each run asks for 3 CPU, but the largest node" in told
    assert "has 1 CPU: ask for fewer with --threads" in told
    assert not list(tmp_path.glob("adding-*"))


def test_nodes_that_differ_are_refused(cluster: RayCluster, tmp_path: Path) -> None:
    """One has another version, one lacks the package; memory:// is a place of each process."""
    other = tmp_path / "other" / "onegate-9.9.dist-info"
    other.mkdir(parents=True)
    (other / "METADATA").write_text("Metadata-Version: 2.1\nName: onegate\nVersion: 9.9\n")
    without = tmp_path / "without"
    without.mkdir()
    (without / "sitecustomize.py").write_text(
        "import sys\n"
        "class Hidden:\n"
        "    def find_spec(self, name, *_):\n"
        "        if name.partition('.')[0] == 'onegate':\n"
        "            raise ModuleNotFoundError(f'No module named {name!r}')\n"
        "sys.meta_path.insert(0, Hidden())\n"
    )
    extra = [cluster.start({"PYTHONPATH": str(folder)}) for folder in (other.parent, without)]
    try:
        driver = start(cluster, command(cluster.address, "memory://runs"))
        told = end(driver)
    finally:
        for node in extra:
            node.kill()
    assert driver.returncode == 2, told
    assert "onegate: nothing was run:" in told
    lines = {line.split()[1]: line for line in told.splitlines() if line.startswith("  node ")}
    assert "onegate is 9.9 there and" in told
    assert "onegate cannot be imported there (No module named 'onegate')" in lines["127.0.0.6"]
    assert "results cannot land in memory://runs: it does not see" in lines["127.0.0.2"]
    assert "that all nodes share with --runs" in lines["127.0.0.2"]
