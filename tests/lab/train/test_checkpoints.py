"""Checkpoints are whole or not used."""

from __future__ import annotations

import warnings
from pathlib import Path

import pytest
import torch

from onegate.lab.train.checkpoints import Checkpoint, CheckpointError, Checkpoints


def state(update: int, best: int | None = None) -> Checkpoint:
    tensors = {"w": torch.full((5, 3), float(update)), "rng": torch.arange(7, dtype=torch.uint8)}
    values = {"epoch": update / 10, "lr": 0.1 + update * 1e-17, "nothing": None}
    return Checkpoint(update, tensors, values | ({} if best is None else {"best_update": best}))


def damage(path: Path, how: str) -> None:
    content = bytearray(path.read_bytes())
    if how == "cut":
        content = content[: len(content) // 2]
    elif how == "flipped":
        content[len(content) * 2 // 3] ^= 0x10
    elif how == "empty":
        content.clear()
    path.write_bytes(bytes(content))


def test_what_is_saved_is_loaded_bit_by_bit(tmp_path: Path) -> None:
    kept = Checkpoints(tmp_path / "c")
    assert kept.last() is None
    odd = torch.tensor([0.1, -0.0, float("inf"), 1e-45]).view(2, 2).t()
    kept.save(Checkpoint(3, {"odd": odd, "n": torch.tensor(5)}, {"x": 0.1, "y": [1, {"z": ""}]}))
    found = kept.last()
    assert found is not None
    assert found.update == 3
    assert found.values == {"x": 0.1, "y": [1, {"z": ""}]}
    assert torch.equal(found.tensors["odd"].view(torch.int32), odd.contiguous().view(torch.int32))
    assert found.tensors["n"].item() == 5


def test_the_last_two_and_the_best_are_kept(tmp_path: Path) -> None:
    kept = Checkpoints(tmp_path)
    for update in range(0, 100, 10):
        kept.save(state(update, best=20 if update >= 20 else None))
    assert kept.updates() == [20, 80, 90]
    assert sorted(p.name for p in tmp_path.glob("*.safetensors")) == [
        "00000020.safetensors", "00000080.safetensors", "00000090.safetensors"
    ]  # fmt: skip
    assert kept.load(20).tensors["w"][0, 0] == 20


@pytest.mark.parametrize("suffix", ["safetensors", "json"])
@pytest.mark.parametrize("how", ["cut", "flipped", "empty"])
def test_a_damaged_one_is_passed_over_with_a_warning(tmp_path: Path, suffix: str, how: str) -> None:
    kept = Checkpoints(tmp_path)
    kept.save(state(10))
    kept.save(state(20))
    damage(tmp_path / f"00000020.{suffix}", how)
    with pytest.warns(UserWarning, match=r"00000020.*using the checkpoint before it"):
        found = kept.last()
    assert found is not None
    assert found.update == 10


def test_every_single_flipped_bit_of_the_json_is_noticed(tmp_path: Path) -> None:
    kept = Checkpoints(tmp_path)
    kept.save(state(20))
    path = tmp_path / "00000020.json"
    whole = path.read_bytes()
    original = kept.load(20)
    for position in range(len(whole)):
        broken = bytearray(whole)
        broken[position] ^= 0x01
        path.write_bytes(bytes(broken))
        try:
            found = kept.load(20)
        except CheckpointError:
            continue
        # White space between the values may change; what is read must not.
        assert found.values == original.values


def test_missing_tensors_are_named(tmp_path: Path) -> None:
    kept = Checkpoints(tmp_path)
    kept.save(state(20))
    (tmp_path / "00000020.safetensors").unlink()
    with pytest.raises(CheckpointError, match=r"00000020\.safetensors cannot be read"):
        kept.load(20)
    with pytest.raises(CheckpointError, match="there is no checkpoint"):
        kept.load(30)


def test_all_damaged_is_an_error(tmp_path: Path) -> None:
    kept = Checkpoints(tmp_path)
    for update in (10, 20):
        kept.save(state(update))
        damage(tmp_path / f"{update:08d}.safetensors", "cut")
    with (
        pytest.warns(UserWarning, match="is damaged"),
        pytest.raises(CheckpointError, match="none of the 2"),
    ):
        kept.last()


def test_tensors_without_their_json_are_no_checkpoint(tmp_path: Path) -> None:
    kept = Checkpoints(tmp_path)
    kept.save(state(10))
    (tmp_path / "00000020.safetensors").write_bytes(b"half")
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        found = kept.last()
    assert found is not None
    assert found.update == 10
    kept.save(state(30))
    assert not (tmp_path / "00000020.safetensors").exists()


def test_later_ones_can_be_removed(tmp_path: Path) -> None:
    kept = Checkpoints(tmp_path)
    for update in (10, 20):
        kept.save(state(update))
    kept.remove_after(10)
    assert kept.updates() == [10]


def test_no_draft_is_left_behind_by_a_failed_write(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    kept = Checkpoints(tmp_path)
    kept.save(state(10))

    def fail(_: int) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr("os.fsync", fail)
    with pytest.raises(OSError, match="No space left"):
        kept.save(state(20))
    assert kept.updates() == [10]
    assert len(list(tmp_path.iterdir())) == 2
