"""Packed files opened within bounds, in memory: nothing is written, no link is followed."""

from __future__ import annotations

import gzip
import io
import tarfile
import zlib
from collections.abc import Callable

from .errors import ContentError

# The largest archive that is read, aclImdb_v1.tar.gz, has 100,000 reviews and unpacks to less than
# 350 MB. What goes beyond these bounds is none of ours, whatever it claims to be.
LARGEST_ARCHIVE = 500_000_000
MOST_MEMBERS = 200_000


def inflate(content: bytes, limit: int) -> bytes:
    """What gzip packed, if it is at most `limit` bytes; more than that are never unpacked."""
    try:
        with gzip.open(io.BytesIO(content)) as file:
            unpacked = file.read(limit + 1)
    except (gzip.BadGzipFile, EOFError, zlib.error) as error:
        raise ContentError(f"it is no whole gzip file: {error}") from None
    if len(unpacked) > limit:
        raise ContentError(
            f"its {len(content):,} bytes unpack to more than {limit:,}, expected at most that"
        )
    return unpacked


def members(content: bytes, wanted: Callable[[str], bool]) -> dict[str, bytes]:
    """The plain files of a tar.gz archive whose names are wanted, without a leading `./`."""
    content = inflate(content, LARGEST_ARCHIVE)
    found = {}
    try:
        # `r:` takes plain tar alone: what is packed twice would unpack beyond the bound.
        with tarfile.open(fileobj=io.BytesIO(content), mode="r:") as archive:
            for number, member in enumerate(archive):
                if number >= MOST_MEMBERS:
                    raise ContentError(f"it has more than the {MOST_MEMBERS:,} members expected")
                name = member.name.removeprefix("./")
                if member.isfile() and not member.issparse() and wanted(name):
                    # Slices are much faster than a file object for each of many small members.
                    found[name] = content[member.offset_data : member.offset_data + member.size]
    except (tarfile.TarError, EOFError, OverflowError) as error:
        raise ContentError(f"it is no whole tar archive: {error}") from None
    return found
