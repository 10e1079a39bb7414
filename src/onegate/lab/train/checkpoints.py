"""Checkpoints: the whole state of a training run, in files that are whole or not used.

A checkpoint of update 1200 is `00001200.safetensors` (all tensors) and `00001200.json` (everything
else, which tensors there are, and the checksums of both). The JSON file is written last, so that a
checkpoint exists as soon as its JSON does. Nothing is ever unpickled.
"""

from __future__ import annotations

import hashlib
import json
import warnings
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch

from onegate import files, tensor_files

_KEPT = 2  # the last one, and one before it in case the last is damaged
_NAMED = 3  # tensors that an error names
# What a checkpoint's JSON holds; versions before `tensors` did not list them.
_BODY: dict[str, Any] = {
    "update": int,
    "tensors_sha256": str,
    "tensors?": {...: str},
    "values": {},
    "sha256": str,
}


class CheckpointError(ValueError):
    """A checkpoint cannot be used; the message says why and what to do."""


@dataclass(frozen=True)
class Checkpoint:
    """What a run needs to go on after `update` as if it had never stopped."""

    update: int
    tensors: Mapping[str, torch.Tensor]
    values: Mapping[str, Any]


def layouts(tensors: Mapping[str, torch.Tensor]) -> dict[str, str]:
    """The type and shape of each tensor, as `float32 5x3`."""
    return {
        name: f"{str(t.dtype).removeprefix('torch.')} {'x'.join(map(str, t.shape))}".strip()
        for name, t in tensors.items()
    }


def require_layouts(found: Mapping[str, str], expected: Mapping[str, str], what: str) -> None:
    """Raises `CheckpointError` that names the first tensors missing, not known, or of other shape.

    what: where the tensors are.
    """
    problems = [f"{name} ({expected[name]}) is missing" for name in expected if name not in found]
    problems += [f"{name} ({found[name]}) is not known" for name in found if name not in expected]
    problems += [
        f"{name} is {found[name]}, expected {layout}"
        for name, layout in expected.items()
        if found.get(name, layout) != layout
    ]
    if problems:
        more = f"; and {len(problems) - _NAMED} more" if len(problems) > _NAMED else ""
        raise CheckpointError(f"{what}: {'; '.join(problems[:_NAMED])}{more}")


class Checkpoints:
    """The checkpoints of one run folder: the last two, and the best.

    Which one is the best stands in the checkpoints themselves (`values["best_update"]`), so that
    it always fits the state that is resumed from.
    """

    def __init__(self, folder: Path) -> None:
        self.folder = folder

    def updates(self) -> list[int]:
        """The updates of which there is a checkpoint, in order."""
        stems = (path.stem for path in self.folder.glob("*.json"))
        return sorted(int(stem) for stem in stems if stem.isdigit())

    def save(self, checkpoint: Checkpoint) -> None:
        """Writes a checkpoint; older ones are removed when it is safely there."""
        self.folder.mkdir(exist_ok=True)
        tensors, values = self._paths(checkpoint.update)
        content = tensor_files.to_bytes(checkpoint.tensors)
        body = {
            "update": checkpoint.update,
            "tensors_sha256": hashlib.sha256(content).hexdigest(),
            "tensors": layouts(checkpoint.tensors),
            "values": dict(checkpoint.values),
        }
        files.write(tensors, content)
        files.write_json(values, {**body, "sha256": _checksum(body)})
        self._remove_old(keep={checkpoint.values.get("best_update"), *self.updates()[-_KEPT:]})

    def load(self, update: int) -> Checkpoint:
        """The checkpoint of an update, checked; `CheckpointError` names what is damaged."""
        tensors, _ = self._paths(update)
        body = self._read_values(update)
        try:
            content = tensors.read_bytes()
        except OSError as error:
            raise CheckpointError(f"{tensors} cannot be read: {error.strerror}") from None
        found = hashlib.sha256(content).hexdigest()
        if found != body["tensors_sha256"]:
            raise CheckpointError(
                f"{tensors} is damaged: its SHA-256 is {found[:16]}..., "
                f"{body['tensors_sha256'][:16]}... was written"
            )
        try:
            loaded, _ = tensor_files.from_bytes(content)
        except ValueError as error:
            raise CheckpointError(f"{tensors} holds no tensors: {error}") from None
        require_layouts(layouts(loaded), body.get("tensors", layouts(loaded)), str(tensors))
        return Checkpoint(update, loaded, body["values"])

    def last(self, check: Callable[[Checkpoint], None] = lambda _: None) -> Checkpoint | None:
        """The last checkpoint that is whole, with a warning for each one that is not.

        check: raises `CheckpointError` for one that the run cannot go on from.
        """
        updates = self.updates()
        for update in reversed(updates):
            try:
                found = self.load(update)
                check(found)
                return found
            except CheckpointError as error:
                warnings.warn(f"{error}; using the checkpoint before it", stacklevel=2)
        if updates:
            raise CheckpointError(
                f"none of the {len(updates)} checkpoints in {self.folder} is whole: "
                "remove the folder and start the run again"
            )
        return None

    def remove_after(self, update: int) -> None:
        """Removes the checkpoints beyond `update`, which a resumed run will write again."""
        for later in self.updates():
            if later > update:
                self._remove(later)

    def _remove_old(self, keep: set[Any]) -> None:
        for update in self.updates():
            if update not in keep:
                self._remove(update)
        # Tensors without a JSON file were being written when a process was killed.
        known = set(self.updates())
        for path in self.folder.glob("*.safetensors"):
            if path.stem.isdigit() and int(path.stem) not in known:
                path.unlink()

    def _remove(self, update: int) -> None:
        tensors, values = self._paths(update)
        values.unlink()
        tensors.unlink(missing_ok=True)

    def _paths(self, update: int) -> tuple[Path, Path]:
        stem = f"{update:08d}"
        return self.folder / f"{stem}.safetensors", self.folder / f"{stem}.json"

    def _read_values(self, update: int) -> dict[str, Any]:
        path = self._paths(update)[1]
        try:
            body = files.read_json(path, _BODY)
        except FileNotFoundError:
            raise CheckpointError(f"there is no checkpoint {path}") from None
        except ValueError as error:
            raise CheckpointError(str(error)) from None
        if body.pop("sha256") != _checksum(body):
            raise CheckpointError(f"{path} is damaged: it does not have the checksum it states")
        if body["update"] != update:
            raise CheckpointError(f"{path} is the checkpoint of update {body['update']}")
        return body


def _checksum(body: Mapping[str, Any]) -> str:
    return hashlib.sha256(json.dumps(body, sort_keys=True).encode()).hexdigest()
