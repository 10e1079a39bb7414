"""A Ray cluster of node processes on this machine's loopback addresses."""

from __future__ import annotations

import contextlib
import ctypes
import os
import secrets
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Mapping, Sequence
from pathlib import Path

_SECONDS_TO_START = 300
_ATTEMPTS = 3
# Deaths are noticed within seconds, not within a minute; processes that start on a busy machine are
# waited for.
_PATIENCE: Mapping[str, str] = {
    "RAY_health_check_initial_delay_ms": "1000",
    "RAY_health_check_period_ms": "500",
    "RAY_health_check_timeout_ms": "30000",
    "RAY_health_check_failure_threshold": "3",
    "RAY_USAGE_STATS_ENABLED": "0",
    "RAY_CLIENT_SERVER_CHECK_CHANNEL_TIMEOUT_S": "120",
    "RAY_worker_register_timeout_seconds": "300",
}


class Node:
    """One node: `ray start --block` and everything that it starts."""

    def __init__(self, options: Sequence[str], log: Path, env: Mapping[str, str]) -> None:
        self.log = log
        # On a machine that is busy, or halted for a while, Ray gives up its start within 30 s.
        for attempt in range(1, _ATTEMPTS + 1):
            self.process = self._launch(options, env)
            if self._has_started():
                return
            self.kill()
            assert attempt < _ATTEMPTS, log.read_text()

    def _launch(self, options: Sequence[str], env: Mapping[str, str]) -> subprocess.Popen[bytes]:
        ray = str(Path(sys.executable).parent / "ray")
        with self.log.open("w") as file:
            return subprocess.Popen(
                [ray, "start", "--block", "--num-cpus=1", "--disable-usage-stats",
                 f"--object-store-memory={80 * 1024 * 1024}", *options],
                stdout=file, stderr=subprocess.STDOUT, start_new_session=True,
                preexec_fn=_die_with_the_tests,
                env={**os.environ, **_PATIENCE, **env},
            )  # fmt: skip

    def _has_started(self) -> bool:
        deadline = time.monotonic() + _SECONDS_TO_START
        while "Ray runtime started" not in self.log.read_text():
            if self.process.poll() is not None or time.monotonic() > deadline:
                return False
            time.sleep(0.1)
        return True

    def processes(self, name: str = "") -> list[int]:
        """The processes of this node whose command begins with a name, the first one's included."""
        tree = _descendants(self.process.pid)
        return [pid for pid in tree if _command(pid).startswith(name)]

    def kill(self) -> None:
        """SIGKILL to everything at once."""
        for pid in self.processes():
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
        self.process.wait()


class RayCluster:
    """A head and more nodes, each with one CPU."""

    def __init__(self) -> None:
        # Sockets in it have names of at most 107 characters.
        self.folder = Path(tempfile.mkdtemp(prefix="onegate-ray-"))
        self.nodes: list[Node] = []
        # For all that belong to this cluster: whether its user has a token of Ray's, which turns
        # authentication on for some commands, makes no difference.
        self.environment = {"RAY_AUTH_MODE": "token", "RAY_AUTH_TOKEN": secrets.token_hex(32)}
        self.address = f"127.0.0.2:{_free_port()}"
        self.client = f"ray://127.0.0.2:{_free_port()}"

    def start(self, env: Mapping[str, str] | None = None) -> Node:
        """Adds a node, the first one being the head."""
        number = len(self.nodes)
        where = [f"--node-ip-address=127.0.0.{number + 2}"]
        if number == 0:
            port, client = self.address.split(":")[1], self.client.rpartition(":")[2]
            where += ["--head", f"--port={port}", f"--ray-client-server-port={client}",
                      "--include-dashboard=false", f"--temp-dir={self.folder / 'ray'}"]  # fmt: skip
        else:
            where += [f"--address={self.address}"]
        node = Node(where, self.folder / f"node-{number}.log", {**self.environment, **(env or {})})
        self.nodes.append(node)
        return node

    def stop(self) -> None:
        """Ends all that was started, and nothing else."""
        for node in reversed(self.nodes):
            node.kill()
        shutil.rmtree(self.folder, ignore_errors=True)


def _die_with_the_tests() -> None:
    """Ray ends its node at SIGTERM, which comes if the tests are killed before they end it."""
    set_parent_death_signal = 1
    ctypes.CDLL(None).prctl(set_parent_death_signal, signal.SIGTERM)


def _free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.2", 0))
        return int(probe.getsockname()[1])


def _descendants(root: int) -> list[int]:
    """A process and all that come from it; those that lost their parent keep its session."""
    parents: dict[int, tuple[int, int]] = {}
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit():
            with contextlib.suppress(OSError):
                fields = (entry / "stat").read_text().rpartition(")")[2].split()
                parents[int(entry.name)] = int(fields[1]), int(fields[3])
    found = {root}
    while True:
        more = {pid for pid, (parent, session) in parents.items()
                if parent in found or session in found} - found  # fmt: skip
        if not more:
            return sorted(found)
        found |= more


def _command(pid: int) -> str:
    try:
        return (Path("/proc") / str(pid) / "cmdline").read_bytes().replace(b"\0", b" ").decode()
    except OSError:
        return ""
