"""The runs of a sweep as tasks of a Ray cluster.

Each run is a task that declares its CPUs. When a worker or a node dies, Ray starts the task again
on another, where the run goes on from its last checkpoint. Nothing is sent back but how a run
ended; what is shown of running ones is read where the results land.
"""

from __future__ import annotations

import logging
import re
import socket
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any

from onegate import files
from onegate.lab import plugins, recipes
from onegate.lab.sweep import preflight, worker
from onegate.lab.sweep.places import Place, place
from onegate.lab.sweep.plan import Plan
from onegate.lab.sweep.preflight import ClusterError, Node
from onegate.lab.sweep.worker import News, State
from onegate.lab.train.progress import shown
from onegate.lab.train.session import StopRequest

# Deaths that a run survives; a run that takes its worker down each time must come to an end.
_RETRIES = 5
_SECONDS_TO_CONNECT = 5.0
_ATTEMPTS_TO_CONNECT = 4
# What Ray says when the process that it starts for a client died, or was not heard of in time.
_PASSING = ("client server failed", "failed to Connect to backend")
_SECONDS_TO_ANSWER = 300.0
_SECONDS_BETWEEN_LOOKS = 1.0


class Cluster:
    """A Ray cluster, to be used as the backend of `sweep.run` within `connected`."""

    def __init__(self, ray: Any) -> None:
        self.ray = ray

    def nodes(self) -> list[Node]:
        """The nodes that are alive."""
        return [
            Node(f"node {n['NodeManagerAddress']} ({n['NodeID'][:8]})", n["NodeID"], n["Resources"])
            for n in self.ray.nodes()
            if n["Alive"]
        ]

    def slots(self, plan: Plan) -> int:
        """How many runs fit side by side."""
        wanted = {"CPU": plan.threads, "GPU": plan.gpus}
        return sum(
            min(int(node.resources.get(name, 0) // n) for name, n in wanted.items() if n)
            for node in self.nodes()
        )

    def check(self, plan: Plan) -> None:
        """Raises `ClusterError` for whatever would fail later."""
        for recipe in plan.recipes:
            if name := plugins.only_here(recipe):
                raise ClusterError(
                    f"{name} is defined in a notebook or a script, which other machines do not "
                    "have: write it into a file of its own, and name that with --plugin"
                )
        nodes = self.nodes()
        gpus = {"GPU": plan.gpus} if plan.gpus else {}
        preflight.check_resources(nodes, {"CPU": plan.threads, **gpus})
        preflight.check(nodes, plan.place, self._ask)

    def _ask(
        self, nodes: Sequence[Node], address: str, probe: str
    ) -> Mapping[str, Mapping[str, Any]]:
        from ray.util.scheduling_strategies import NodeAffinitySchedulingStrategy

        # Defined here so that Ray sends its code, not the name of a module that may be missing.
        def look(address: str, probe: str) -> dict[str, Any]:
            try:
                from onegate.lab.sweep.preflight import look_around
            except ImportError as error:
                return {"missing": str(error)}
            return look_around(address, probe)

        task = self.ray.remote(num_cpus=0, max_retries=0)(look)
        asked = {
            node.name: task.options(
                scheduling_strategy=NodeAffinitySchedulingStrategy(node.identity, soft=False)
            ).remote(address, probe)
            for node in nodes
        }
        try:
            return {
                name: self.ray.get(answer, timeout=_SECONDS_TO_ANSWER)
                for name, answer in asked.items()
            }
        except self.ray.exceptions.RayError as error:
            raise ClusterError(f"nothing was run: a node does not answer: {error}") from None

    def __call__(self, plan: Plan, names: Sequence[str], report: Callable[[News], None]) -> int:
        """Runs the named runs; returns the number of the signal that stopped them, or 0."""
        stop = StopRequest()
        with stop.watching():
            _Tasks(self.ray, plan, names, report, self.slots(plan)).run(stop)
        return stop.number


class _Tasks:
    """The tasks of a sweep that have not ended."""

    def __init__(
        self,
        ray: Any,
        plan: Plan,
        names: Sequence[str],
        report: Callable[[News], None],
        slots: int,
    ) -> None:
        self.ray, self.plan, self.report, self.slots = ray, plan, report, slots
        # What an earlier attempt left says nothing about this one.
        self.luggage = plugins.luggage()
        self.seen = {name: _look(plan.place, name) for name in names}
        self.task = ray.remote(num_cpus=plan.threads, num_gpus=plan.gpus, max_retries=_RETRIES)(
            _run
        )
        self.names = {self._submit(name): name for name in names}

    def _submit(self, name: str) -> Any:
        plan = self.plan
        return self.task.options(name=name).remote(
            recipes.to_json(plan.runs[name]),
            name,
            plan.place.address,
            plan.threads,
            plan.checkpoint_seconds,
            plan.device,
            self.luggage,
        )

    def run(self, stop: StopRequest) -> None:
        cancelled = False
        while self.names:
            ready, _ = self.ray.wait(list(self.names), timeout=_SECONDS_BETWEEN_LOOKS)
            for reference in ready:
                self._end(self.names.pop(reference), reference, cancelled)
            self._follow()
            if stop.number and not cancelled:
                cancelled = True
                for reference in self.names:
                    self.ray.cancel(reference)

    def _end(self, name: str, reference: Any, cancelled: bool) -> None:
        errors = self.ray.exceptions
        state: State = "stopped" if cancelled else "failed"
        notes: tuple[str, ...] = ()
        try:
            state, text, notes = self.ray.get(reference)
        except (errors.WorkerCrashedError, errors.NodeDiedError, errors.OutOfMemoryError) as error:
            text = f"its worker or node died {_RETRIES + 1} times: {_plain(error)}"
        except errors.RayError as error:
            text = _plain(error)
        if state == "stopped" and not cancelled:  # its node was told to go: another one takes over
            self.names[self._submit(name)] = name
            state = "waiting"
        self.report(News(name, state, text, notes))

    def _follow(self) -> None:
        """Tells of the runs that moved on; tasks begin in the order in which they were given."""
        for name in list(self.names.values())[: 2 * self.slots]:
            now = _look(self.plan.place, name)
            if now != self.seen[name]:
                self.seen[name] = now
                self.report(News(name, "running", _position(now[1])))


def _run(
    content: Mapping[str, Any],
    name: str,
    address: str,
    threads: int,
    checkpoint_seconds: float,
    device: str,
    carried: tuple[Any, ...],
) -> tuple[str, str, tuple[str, ...]]:
    """The task: one run, in a worker of the cluster."""
    plugins.unpack(plugins.Luggage(*carried))
    recipe, there = recipes.from_json(content), place(address)
    news = worker.run(recipe, name, there, threads, checkpoint_seconds, lambda _: None, device)
    return news.state, news.text, news.notes


def _look(there: Place, name: str) -> tuple[bytes, bytes]:
    """Status and metrics of a run as they are stored."""
    return there.read(f"{name}/status.json") or b"", there.read(f"{name}/metrics.jsonl") or b""


def _position(metrics: bytes) -> str:
    """Epoch and metrics of the last whole line."""
    for line in reversed(metrics.splitlines()):
        try:
            last = files.parse_json(line)
            files.require(last, {"epoch": float, ...: float}, "")
        except ValueError:
            continue
        return f"epoch {last['epoch']:.2f}  {shown(last)}".rstrip()
    return ""


def _plain(error: Exception) -> str:
    """An error of Ray without colours and without the traces of its own machinery."""
    text = re.sub(r"\x1b\[[0-9;]*m", "", str(error)).strip()
    return text.splitlines()[-1] if "Traceback" in text else text


@contextmanager
def connected(address: str) -> Iterator[Cluster]:
    """A cluster: `ray` for one on this machine, which is started if there is none, or an address.

    Addresses are those of `ray start` (10.0.0.1:6379) and of Ray's client (ray://10.0.0.1:10001).
    """
    try:
        import ray
    except ImportError:
        raise ClusterError("Ray is not installed here: pip install 'onegate[ray]'") from None
    quiet: dict[str, Any] = {"log_to_driver": False, "logging_level": logging.ERROR}
    try:
        if address == "ray":
            _init_here(ray, quiet)
        else:
            _check_reachable(address)
            _init_at(ray, address, quiet)
    except (
        *(ConnectionError, RuntimeError, ValueError, ImportError),
        ray.exceptions.RayError,  # a cluster that asks for a token, for one
    ) as error:
        raise ClusterError(_why_not_connected(address, error)) from None
    try:
        yield Cluster(ray)
    finally:
        ray.shutdown()


def _init_here(ray: Any, quiet: Mapping[str, Any]) -> None:
    try:
        ray.init("auto", **quiet)
    except ConnectionError:
        ray.init("local", include_dashboard=False, **quiet)


def _init_at(ray: Any, address: str, quiet: Mapping[str, Any]) -> None:
    """Ray forks a process for each client, out of one with threads; on a busy head it may die."""
    for attempt in range(_ATTEMPTS_TO_CONNECT):
        try:
            ray.init(address, **quiet)
            return
        except (ConnectionError, RuntimeError) as error:
            passing = any(one in str(error) for one in _PASSING)
            if not passing or attempt == _ATTEMPTS_TO_CONNECT - 1:
                raise


def _check_reachable(address: str) -> None:
    """Ray itself would try for minutes."""
    host, colon, port = address.removeprefix("ray://").rpartition(":")
    if not colon or not port.isdigit():
        raise ClusterError(
            f"--on {address}: expected ray, host:port or ray://host:port, such as 10.0.0.1:6379"
        )
    try:
        socket.create_connection((host, int(port)), _SECONDS_TO_CONNECT).close()
    except OSError as error:
        raise ConnectionError(error.strerror or str(error)) from None


def _why_not_connected(address: str, error: Exception) -> str:
    if isinstance(error, ClusterError):
        return str(error)
    return (
        f"no Ray cluster can be reached at {address}: {_plain(error)}. Is it running "
        "(`ray start --head` on one machine, `ray start --address=...` on the others), is the port "
        "right, and does this machine have the cluster's version of Ray and Python?"
    )
