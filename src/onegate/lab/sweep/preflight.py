"""What must hold on every node of a cluster before work is sent there."""

from __future__ import annotations

import hashlib
import importlib.metadata
import socket
import uuid
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch

import onegate
from onegate.lab.sweep.places import Place, PlaceError, place

_PROBE = ".probe-"
# Parts of the package that no run's numbers depend on.
_APART = tuple(f"lab/{part}/" for part in ("bench", "cli", "inside", "pages", "report"))


class ClusterError(ValueError):
    """A cluster cannot run a sweep; the message says which node, why, and what to do."""


@dataclass(frozen=True)
class Node:
    """A machine of a cluster; resources: how much it has, by name."""

    name: str
    identity: str
    resources: Mapping[str, float]


def versions() -> dict[str, str]:
    """What must be equal on all nodes: the package, the code that runs go through, torch."""
    folder = Path(onegate.__file__).parent
    digest = hashlib.sha256()
    for path in sorted(folder.rglob("*.py")):
        name = path.relative_to(folder).as_posix()
        if not name.startswith(_APART):
            digest.update(name.encode() + path.read_bytes())
    return {
        "onegate": importlib.metadata.version("onegate"),
        "the code of onegate": digest.hexdigest()[:8],
        "torch": torch.__version__,
    }


def look_around(address: str, probe: str) -> dict[str, Any]:
    """What a node sees: its versions, and whether the probe is at the place of the results.

    The node leaves an answer there, by which the other side knows that it is the same place.
    """
    try:
        there = place(address)
        seen = there.read(probe) is not None
        if seen:
            there.write(f"{probe}-{socket.gethostname()}-{uuid.uuid4().hex}", b"seen")
        problem = "" if seen else "it does not see what is written there"
    except (PlaceError, OSError) as error:
        problem = str(error)
    return {"versions": versions(), "place": problem}


def check_resources(nodes: Sequence[Node], wanted: Mapping[str, float]) -> None:
    """Refuses what no node has."""
    if not nodes:
        raise ClusterError("the cluster has no node that is alive: add one with `ray start`")
    if any(all(n.resources.get(k, 0) >= v for k, v in wanted.items()) for n in nodes):
        return
    asked = " and ".join(f"{amount:g} {name}" for name, amount in wanted.items())
    largest = max(nodes, key=lambda n: n.resources.get("CPU", 0))
    has = ", ".join(f"{largest.resources.get(name, 0):g} {name}" for name in wanted)
    raise ClusterError(
        f"each run asks for {asked}, but the largest node, {largest.name}, has {has}: "
        "ask for fewer with --threads, or add a larger node"
    )


def check(
    nodes: Sequence[Node],
    results: Place,
    ask: Callable[[Sequence[Node], str, str], Mapping[str, Mapping[str, Any]]],
) -> None:
    """Refuses a cluster with nodes that lack the package, differ in it, or see other results.

    ask: has every node `look_around`, and returns the answers by the name of the node.
    """
    probe = f"{_PROBE}{uuid.uuid4().hex}"
    results.write(probe, b"probe")
    try:
        answers = ask(nodes, results.address, probe)
        answered = [name for name in results.names() if name.startswith(f"{probe}-")]
    finally:
        for name in results.names():
            if name.startswith(probe):
                results.remove(name)
    ours = versions()
    problems = [
        f"{node.name}: {problem}"
        for node in nodes
        for problem in _problems(answers[node.name], ours, results)
    ]
    if problems:
        raise ClusterError("nothing was run:\n  " + "\n  ".join(problems))
    if len(answered) < len(nodes):
        raise ClusterError(
            f"nothing was run: {len(nodes) - len(answered)} of {len(nodes)} nodes see a {results} "
            "of their own: name a folder or an address that all nodes share with --runs"
        )


def _problems(answer: Mapping[str, Any], ours: Mapping[str, str], results: Place) -> list[str]:
    if "missing" in answer:
        return [
            f"onegate cannot be imported there ({answer['missing']}): install version "
            f"{ours['onegate']} on this node"
        ]
    found = answer["versions"]
    problems = [
        f"{name} is {found[name]} there and {wanted} here: install the same version on all nodes"
        for name, wanted in ours.items()
        if found[name] != wanted
    ]
    if answer["place"]:
        problems.append(
            f"results cannot land in {results}: {answer['place']}; name a folder or an address "
            "that all nodes share with --runs"
        )
    return problems
