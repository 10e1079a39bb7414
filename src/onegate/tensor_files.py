"""Named tensors in one file of the safetensors format, read and written without running code.

A file is the length of its header (8 bytes, little-endian), the header (JSON: `__metadata__`, texts
by name, and dtype, shape and place of each tensor), and the tensors' bytes, one after the other
without gaps. The format is small and does not change, so that the library needs no package for it;
`tests/library/test_tensor_files.py` holds it against the package of that name.
"""

from __future__ import annotations

import json
import math
import struct
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final, NamedTuple

import numpy as np
import torch
from torch import Tensor

from onegate import files

# Names in a file.
DTYPES: Final = {
    "F64": torch.float64,
    "C64": torch.complex64,
    "I64": torch.int64,
    "U64": torch.uint64,
    "F32": torch.float32,
    "I32": torch.int32,
    "U32": torch.uint32,
    "F16": torch.float16,
    "BF16": torch.bfloat16,
    "I16": torch.int16,
    "U16": torch.uint16,
    "I8": torch.int8,
    "U8": torch.uint8,
    "BOOL": torch.bool,
}
DTYPE_NAMES: Final = {dtype: name for name, dtype in DTYPES.items()}
_METADATA: Final = "__metadata__"
_LONGEST_HEADER: Final = 100_000_000  # bytes, as in the package
_MOST_BYTES: Final = 2**63 - 1  # of a tensor, as torch counts them
_ENTRY: Final = {"dtype": {*DTYPES}, "shape": [int], "data_offsets": [int]}


class _Place(NamedTuple):
    name: str
    dtype: torch.dtype
    shape: tuple[int, ...]
    begin: int
    end: int


def write(path: Path, tensors: Mapping[str, Tensor], metadata: Mapping[str, str]) -> None:
    """Writes the file whole or not at all."""
    files.write(path, to_bytes(tensors, metadata))


def to_bytes(tensors: Mapping[str, Tensor], metadata: Mapping[str, str] | None = None) -> bytes:
    """What a file of these tensors holds."""
    _require_little_endian()
    for name, tensor in tensors.items():
        _require_plain(name, tensor)
    # The widest numbers first: then every tensor lies at a multiple of its numbers' size.
    order = sorted(tensors, key=lambda name: (-tensors[name].itemsize, name))
    header: dict[str, Any] = {_METADATA: dict(metadata)} if metadata else {}
    begin = 0
    for name in order:
        tensor = tensors[name]
        end = begin + tensor.numel() * tensor.itemsize
        header[name] = {
            "dtype": DTYPE_NAMES[tensor.dtype],
            "shape": list(tensor.shape),
            "data_offsets": [begin, end],
        }
        begin = end
    text = json.dumps(header, separators=(",", ":")).encode()
    text += b" " * (-len(text) % 8)
    if len(text) > _LONGEST_HEADER:
        raise ValueError(f"names and metadata take {len(text)} bytes, more than a header may")
    return b"".join([struct.pack("<Q", len(text)), text, *(_bytes(tensors[n]) for n in order)])


def read(path: Path) -> tuple[dict[str, Tensor], dict[str, str]]:
    """The tensors and the metadata of a file; what is wrong with it is a `ValueError`."""
    try:
        return from_bytes(path.read_bytes())
    except ValueError as error:
        raise ValueError(f"{path} is no whole safetensors file: {error}") from None


def from_bytes(content: bytes) -> tuple[dict[str, Tensor], dict[str, str]]:
    """The same of a file's content; the tensors have memory of their own."""
    _require_little_endian()
    places, metadata, start = _header(content)
    return {place.name: _tensor(place, content, start) for place in places}, metadata


def _header(content: bytes) -> tuple[list[_Place], dict[str, str], int]:
    """Places of the tensors, in the file's order, metadata, and where the tensors' bytes start."""
    if len(content) < 8:
        raise ValueError(f"it has {len(content)} bytes, expected 8 and a header")
    (length,) = struct.unpack_from("<Q", content)
    if length > min(len(content) - 8, _LONGEST_HEADER):
        raise ValueError(f"its header has {length} bytes by its count, the file {len(content)}")
    text = content[8 : 8 + length]
    if text[:1] != b"{":
        raise ValueError("its header does not begin with {")
    header = files.parse_json(text, unique=True)
    metadata = header.pop(_METADATA, {})
    files.require(metadata, {...: str}, _METADATA)
    places = sorted((_place(*entry) for entry in header.items()), key=lambda p: (p.begin, p.end))
    expected = 0
    for place in places:
        if place.begin != expected:
            how = "overlaps with the one before" if place.begin < expected else "leaves a gap"
            raise ValueError(f"tensor {place.name!r} {how}: it begins at {place.begin}")
        expected = place.end
    if expected != (found := len(content) - 8 - length):
        raise ValueError(f"its tensors have {found} bytes, {expected} by the header")
    return places, metadata, 8 + length


def _place(name: str, entry: Any) -> _Place:
    files.require(entry, _ENTRY, repr(name))
    if extra := {*entry} - {*_ENTRY}:
        raise ValueError(f"tensor {name!r} has an unknown {min(extra)!r}")
    dtype, shape = DTYPES[entry["dtype"]], tuple(entry["shape"])
    if len(entry["data_offsets"]) != 2:
        raise ValueError(f"tensor {name!r} has no begin and end in data_offsets")
    begin, end = entry["data_offsets"]
    if math.prod(max(1, size) for size in shape) * dtype.itemsize > _MOST_BYTES:
        raise ValueError(f"tensor {name!r} of shape {shape} is larger than a tensor can be")
    if end - begin != (size := math.prod(shape) * dtype.itemsize):
        raise ValueError(f"tensor {name!r} has {end - begin} bytes, its shape {shape} needs {size}")
    return _Place(name, dtype, shape, begin, end)


def _tensor(place: _Place, content: bytes, start: int) -> Tensor:
    flat = torch.empty(math.prod(place.shape), dtype=place.dtype)
    if place.end > place.begin:
        size = place.end - place.begin
        raw = np.frombuffer(content, np.uint8, size, start + place.begin)
        if place.dtype is torch.bool and raw.max() > 1:
            raise ValueError(f"tensor {place.name!r} has truth values other than 0 and 1")
        flat.view(torch.uint8).numpy()[:] = raw
    return flat.reshape(place.shape)


def _bytes(tensor: Tensor) -> bytes:
    plain = tensor.detach().cpu().resolve_conj().resolve_neg().contiguous().reshape(-1)
    return plain.view(torch.uint8).numpy().tobytes()


def _require_plain(name: str, tensor: Any) -> None:
    if not isinstance(tensor, Tensor):
        raise ValueError(f"{name} is a {type(tensor).__name__}, expected a tensor")
    if tensor.layout is not torch.strided or tensor.is_meta or tensor.dtype not in DTYPE_NAMES:
        what = f"{tensor.dtype}, {tensor.layout} on {tensor.device}"
        raise ValueError(f"{name} is {what}, which the file cannot hold; convert it first")
    if name == _METADATA:
        raise ValueError(f"no tensor can be called {_METADATA}")


def _require_little_endian() -> None:
    if sys.byteorder != "little":
        raise ValueError("the safetensors format is little-endian, this machine is not")
