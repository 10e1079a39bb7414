"""Runs and comparisons in folders and files: finding them, and keeping finished ones.

`keep` puts what finished runs hold, but for their checkpoints, into one file a task, a line a run:

    TASK.jsonl          {"name": the folder's name, "recipe": ..., "machine": ..., "status": ...,
                         "metrics": [...]}
    comparisons.jsonl   {"name": the file's name, and what the file holds}

Whatever reads runs reads folders and files alike.
"""

from __future__ import annotations

import json
import warnings
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Generic, TypeVar

from onegate import files
from onegate.lab.recipes import NotGivenError
from onegate.lab.runs import (
    COMPARISON,
    CONTENTS,
    Comparison,
    MetricLines,
    NoRunError,
    Run,
    RunError,
    contents,
    read,
    run_name,
)

# A folder with any of these was meant to hold a run.
_SIGNS = ("recipe.json", "status.json", "metrics.jsonl")
_METRICS, _COMPARISONS = "metrics.jsonl", "comparisons.jsonl"
_T = TypeVar("_T")


@dataclass(frozen=True)
class Found(Generic[_T]):
    """What lies at a path, FILE/NAME or FILE:LINE for that of a line; an error if it is damaged.

    content: as it was read, without its name.
    """

    path: Path
    content: Mapping[str, Any]
    read: _T | Exception

    @property
    def damage(self) -> str:
        """Why it cannot be used; empty if it can."""
        return str(self.read) if isinstance(self.read, Exception) else ""


def scan(root: Path) -> Iterator[Found[Run]]:
    """Every run in a folder or below it, or in a .jsonl file, sorted by path."""
    if root.is_file() and root.suffix != ".jsonl":
        raise RunError(f"{root} is neither a folder of runs nor a .jsonl file that keeps some")
    for folder in sorted({path.parent for sign in _SIGNS for path in root.rglob(sign)}):
        yield _found(folder, contents, Run.of)
    for path in [root] if root.is_file() else sorted(root.rglob("*.jsonl")):
        if path.name not in (_METRICS, _COMPARISONS):
            yield from _kept_runs(path)


def scan_comparisons(root: Path) -> Iterator[Found[Comparison]]:
    """Every comparison in a folder or below it, sorted by path."""
    for path in sorted(root.rglob("comparison*.json")):
        yield _found(path, lambda path: read(path, COMPARISON), Comparison.of)
    for path in sorted(root.rglob(_COMPARISONS)):
        yield from _lines(path, COMPARISON, Comparison.of)


def _found(
    path: Path,
    load: Callable[[Path], dict[str, Any]],
    of: Callable[[Path, dict[str, Any]], _T],
) -> Found[_T]:
    content: dict[str, Any] = {}
    try:
        content = load(path)
        return Found(path, content, of(path, content))
    except (ValueError, OSError) as error:
        return Found(path, content, error)


def _kept_runs(path: Path) -> Iterator[Found[Run]]:
    def of(place: Path, content: dict[str, Any]) -> Run:
        noted, lines = content["status"].get("metrics"), MetricLines()
        for line in content["metrics"]:
            lines.add((json.dumps(line) + "\n").encode())
        if noted not in (None, lines.note()):
            raise RunError("its metrics are not those that the run had written")
        return Run.of(place, content)

    return _lines(path, CONTENTS, of)


def _lines(
    path: Path, kind: Mapping[str, Any], of: Callable[[Path, dict[str, Any]], _T]
) -> Iterator[Found[_T]]:
    """What a file keeps, in the order of its lines."""
    try:
        lines = path.read_bytes().splitlines()
    except OSError as error:
        yield Found(path, {}, error)
        return
    for number, line in enumerate(lines, start=1):
        try:
            content = _parsed(line)
            files.require(content, {"name": str, **kind}, "")
            name = content.pop("name")
            if name in ("", "..") or Path(name).name != name:
                raise RunError(f"{name!r} is not the name of a run")
            yield Found(path / name, content, of(path / name, content))
        except ValueError as error:
            yield Found(path.with_name(f"{path.name}:{number}"), {}, error)


def _parsed(line: bytes) -> Any:
    try:
        return files.parse_json(line)
    except ValueError as error:
        raise RunError(f"it is not JSON: {error}") from None


def finished_runs(path: Path) -> list[Run]:
    """The finished runs of `scan`; a warning for damaged ones, none for what is no run yet."""
    found = (one for one in scan(path) if not isinstance(one.read, NoRunError))
    return [run for run in _undamaged(found) if run.state == "done"]


def comparisons(folder: Path) -> list[Comparison]:
    """The comparisons of `scan_comparisons`; a warning for damaged ones."""
    return _undamaged(scan_comparisons(folder))


def _undamaged(all_found: Iterable[Found[_T]]) -> list[_T]:
    """What can be read of these; what cannot is named in a warning and left out."""
    whole = []
    for found in all_found:
        if isinstance(found.read, Exception):
            damaged = "" if isinstance(found.read, NotGivenError) else "damaged and "
            warnings.warn(f"{found.path} is {damaged}left out: {found.damage}", stacklevel=3)
        else:
            whole.append(found.read)
    return whole


def keep(root: Path, to: Path) -> list[str]:
    """Puts the finished runs in `root`, and its comparisons, into files in the folder `to`.

    A run takes the place of the one of the same recipe. Returns the names of what was kept.
    """
    runs = [found for found in scan(root) if not isinstance(found.read, NoRunError)]
    compared = list(scan_comparisons(root))
    _undamaged(runs)
    _undamaged(compared)
    added: dict[str, list[Found[Any]]] = {}
    for found in runs:
        if isinstance(found.read, Run) and found.read.state == "done":
            added.setdefault(f"{found.read.recipe.task}.jsonl", []).append(found)
    added |= {_COMPARISONS: [found for found in compared if not found.damage]} if compared else {}
    to.mkdir(parents=True, exist_ok=True)
    for name, lines in added.items():
        _add_lines(to / name, lines)
    return sorted(_name(found) for lines in added.values() for found in lines)


def _add_lines(path: Path, added: Iterable[Found[Any]]) -> None:
    before: Iterable[Found[Any]] = ()
    if path.exists() and path.name == _COMPARISONS:
        before = _lines(path, COMPARISON, Comparison.of)
    elif path.exists():
        before = _kept_runs(path)
    lines: dict[str, Found[Any]] = {}
    for found in (*before, *added):
        if found.damage:
            raise RunError(f"{found.path} is damaged: {found.damage}; mend or remove it first")
        same = run_name(found.read.recipe) if isinstance(found.read, Run) else _name(found)
        lines[same] = found
    text = "".join(
        json.dumps({"name": _name(found), **found.content}) + "\n"
        for found in sorted(lines.values(), key=_name)
    )
    files.write(path, text.encode())


def _name(found: Found[Any]) -> str:
    """What a line is called: as the folder or the file that it was."""
    return found.path.resolve().name.removesuffix(".json")
