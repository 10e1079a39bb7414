"""Our safetensors files against the package of that name, both ways, and damaged ones."""

from __future__ import annotations

import json
import struct
from pathlib import Path
from typing import Any

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor

from onegate import tensor_files

safetensors = pytest.importorskip("safetensors", reason="needs safetensors to compare with")
peer = pytest.importorskip("safetensors.torch")

DTYPES = [*tensor_files.DTYPES.values()]


def sample(dtype: torch.dtype, shape: tuple[int, ...], seed: int = 0) -> Tensor:
    """Random bytes as numbers, NaN among them; truth values are 0 and 1."""
    drawn = torch.Generator().manual_seed(seed)
    size = int(torch.tensor(shape).prod()) * dtype.itemsize
    limit = 2 if dtype is torch.bool else 256
    raw = torch.randint(limit, (size,), dtype=torch.uint8, generator=drawn)
    return raw.view(dtype).reshape(shape) if size else torch.empty(shape, dtype=dtype)


def same_bytes(a: Tensor, b: Tensor) -> bool:
    flat = [t.contiguous().reshape(-1).view(torch.uint8) for t in (a, b)]
    return a.dtype == b.dtype and a.shape == b.shape and torch.equal(*flat)


shapes = st.lists(st.integers(0, 5), max_size=3).map(tuple)
drawn_tensors = st.dictionaries(
    st.text(max_size=5).filter(lambda name: name != "__metadata__"),
    st.builds(sample, st.sampled_from(DTYPES), shapes, st.integers(0, 99)),
    max_size=5,
)


@settings(deadline=None, max_examples=60)
@given(drawn_tensors, st.dictionaries(st.text(max_size=3), st.text(max_size=9), max_size=3))
def test_both_ways(tensors: dict[str, Tensor], metadata: dict[str, str]) -> None:
    theirs = peer.load(tensor_files.to_bytes(tensors, metadata))
    ours, told = tensor_files.from_bytes(peer.save(tensors, metadata or None))
    assert {*theirs} == {*ours} == {*tensors}
    assert told == metadata
    for name, tensor in tensors.items():
        assert same_bytes(ours[name], tensor)
        assert same_bytes(theirs[name], tensor)


def test_the_bytes_are_the_packages() -> None:
    tensors = {"b": sample(torch.float32, (2, 3)), "a": sample(torch.float64, (1,))}
    assert tensor_files.to_bytes(tensors, {"x": "y"}) == peer.save(tensors, {"x": "y"})


def test_numbers_lie_at_multiples_of_their_size() -> None:
    tensors = {f"{n}": sample(dtype, (n + 1,)) for n, dtype in enumerate(DTYPES)}
    content = tensor_files.to_bytes(tensors, {"odd": "x"})
    (length,) = struct.unpack_from("<Q", content)
    header = json.loads(content[8 : 8 + length])
    for name, tensor in tensors.items():
        assert (8 + length + header[name]["data_offsets"][0]) % tensor.itemsize == 0


def test_views_are_written_as_what_they_show(tmp_path: Path) -> None:
    z = torch.randn(3, 4, dtype=torch.complex64)
    shown = {"t": torch.arange(12.0).reshape(3, 4).T, "neg": z.conj().imag, "conj": z.conj()}
    tensor_files.write(tmp_path / "x", shown, {})
    found, _ = tensor_files.read(tmp_path / "x")
    assert all(same_bytes(found[name], t.resolve_neg().resolve_conj()) for name, t in shown.items())


@pytest.mark.parametrize(
    "wrong",
    [
        torch.zeros(2, dtype=torch.complex128),
        torch.zeros(2, 2).to_sparse(),
        torch.zeros(2, device="meta"),
        3.0,
    ],
)
def test_what_cannot_be_held_is_refused(wrong: Any) -> None:
    with pytest.raises(ValueError, match=r"^w is .*(expected a tensor|convert it first)"):
        tensor_files.to_bytes({"w": wrong})


def file(header: Any, body: bytes = b"", length: int | None = None) -> bytes:
    text = header if isinstance(header, bytes) else json.dumps(header).encode()
    return struct.pack("<Q", len(text) if length is None else length) + text + body


def entry(dtype: Any = "U8", shape: Any = (2,), offsets: Any = (0, 2), **more: Any) -> Any:
    return {"dtype": dtype, "shape": shape, "data_offsets": offsets, **more}


DAMAGED = {
    "empty": (b"", "has 0 bytes"),
    "cut in its length": (b"\x08\0\0", "has 3 bytes"),
    "header longer than the file": (file(b"{}", length=10**6), "1000000 bytes by its count"),
    "header of 2**64 - 1": (file(b"{}", length=2**64 - 1), "by its count"),
    "no object": (file(b"[]"), "does not begin with"),
    "space before": (file(b" {}"), "does not begin with"),
    "no JSON": (file(b"{"), "JSON|Expecting"),
    "no UTF-8": (file(b'{"\xff":1}'), "utf-8"),
    "nested deeply": (file(b'{"a":' * 100_000), "nested"),
    "name twice": (
        file(b'{"a":%b,"a":%b}' % ((json.dumps(entry()).encode(),) * 2), b"ab"),
        "stands twice",
    ),
    "metadata that are no texts": (file({"__metadata__": {"a": 1}}), "expected a text"),
    "metadata that are no object": (file({"__metadata__": []}), "expected an object"),
    "tensor that is a number": (file({"a": 1}), "expected an object"),
    "unknown dtype": (file({"a": entry(dtype="PY")}, b"ab"), "expected one of"),
    "no shape": (file({"a": {"dtype": "U8", "data_offsets": [0, 2]}}, b"ab"), "shape is missing"),
    "negative size": (file({"a": entry(shape=[-1])}, b"ab"), "whole number"),
    "true as a size": (file({"a": entry("U8", [True], (0, 1))}, b"a"), "whole number"),
    "half a size": (file({"a": entry(shape=[2.0])}, b"ab"), "whole number"),
    "one offset": (file({"a": entry(offsets=[2])}, b"ab"), "no begin and end"),
    "end before begin": (file({"a": entry(offsets=[2, 0])}, b"ab"), "its shape"),
    "fewer bytes than the shape": (file({"a": entry("F32")}, b"ab"), "needs 8"),
    "body too short": (file({"a": entry()}, b"a"), "have 1 bytes, 2 by the header"),
    "body too long": (file({"a": entry()}, b"abc"), "have 3 bytes, 2 by the header"),
    "gap": (file({"a": entry(offsets=(1, 3))}, b"abc"), "leaves a gap"),
    "overlap": (file({"a": entry(), "b": entry(offsets=(1, 3))}, b"abc"), "overlaps"),
    "two at one place": (file({"a": entry(), "b": entry()}, b"ab"), "overlaps"),
    "too large": (file({"a": entry("F64", [2**62, 0], (0, 0))}), "larger than"),
    "unknown field": (file({"a": entry(code="x")}, b"ab"), "unknown 'code'"),
    "truth of 2": (file({"a": entry("BOOL")}, b"\1\2"), "truth values"),
}


@pytest.mark.parametrize("name", DAMAGED)
def test_damaged_files(name: str, tmp_path: Path) -> None:
    content, message = DAMAGED[name]
    (tmp_path / "x.safetensors").write_bytes(content)
    with pytest.raises(ValueError, match=rf"x\.safetensors is no whole .*({message})"):
        tensor_files.read(tmp_path / "x.safetensors")


@settings(deadline=None, max_examples=150)
@given(st.data())
def test_a_changed_byte_never_ends_otherwise(data: st.DataObject) -> None:
    content = bytearray(tensor_files.to_bytes({"a": torch.ones(2, 3), "b": torch.ones(1)}))
    for _ in range(data.draw(st.integers(1, 3))):
        content[data.draw(st.integers(0, len(content) - 1))] = data.draw(st.integers(0, 255))
    content = content[: data.draw(st.integers(0, len(content)))]
    try:
        ours, _ = tensor_files.from_bytes(bytes(content))
    except ValueError:
        return
    theirs = peer.load(bytes(content))  # what we take, the package takes, and reads the same
    assert all(same_bytes(ours[name], theirs[name]) for name in ours)
