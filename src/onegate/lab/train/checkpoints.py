"""Checkpoints: the whole state of a training run, in files that are whole or not used.

A checkpoint of update 1200 is `00001200.safetensors` (all tensors) and `00001200.json` (everything
else, and the checksums of both). The JSON file is written last, so that a checkpoint exists as
soon as its JSON does. Nothing is ever unpickled.
"""

from __future__ import annotations

import hashlib
import json
import warnings
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import safetensors
import safetensors.torch
import torch

from onegate import files

_KEPT = 2  # the last one, and one before it in case the last is damaged


class CheckpointError(ValueError):
    """A checkpoint cannot be used; the message says why and what to do."""


@dataclass(frozen=True)
class Checkpoint:
    """What a run needs to go on after `update` as if it had never stopped."""

    update: int
    tensors: Mapping[str, torch.Tensor]
    values: Mapping[str, Any]


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
        content = safetensors.torch.save(
            {name: tensor.contiguous() for name, tensor in checkpoint.tensors.items()}
        )
        body = {
            "update": checkpoint.update,
            "tensors_sha256": hashlib.sha256(content).hexdigest(),
            "values": dict(checkpoint.values),
        }
        files.write(tensors, content)
        files.write_json(values, {**body, "sha256": _checksum(body)})
        self._remove_old(keep={checkpoint.values.get("best_update"), *self.updates()[-_KEPT:]})

    def load(self, update: int) -> Checkpoint:
        """The checkpoint of an update, checked; `CheckpointError` names what is damaged."""
        tensors, values = self._paths(update)
        body = self._read_values(values)
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
        # Cloned: the loaded ones are views of `content`, not aligned as torch's own are.
        loaded = {name: t.clone() for name, t in safetensors.torch.load(content).items()}
        return Checkpoint(update, loaded, body["values"])

    def last(self) -> Checkpoint | None:
        """The last checkpoint that is whole, with a warning for each one that is not."""
        updates = self.updates()
        for update in reversed(updates):
            try:
                return self.load(update)
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

    @staticmethod
    def _read_values(path: Path) -> dict[str, Any]:
        try:
            body = files.read_json(path)
        except FileNotFoundError:
            raise CheckpointError(f"there is no checkpoint {path}") from None
        except (OSError, ValueError) as error:
            raise CheckpointError(str(error)) from None
        stated = body.pop("sha256", None)
        if stated != _checksum(body):
            raise CheckpointError(f"{path} is damaged: it does not have the checksum it states")
        return body


def _checksum(body: Mapping[str, Any]) -> str:
    return hashlib.sha256(json.dumps(body, sort_keys=True).encode()).hexdigest()
