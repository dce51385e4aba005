"""The checksum of a Parquet file's footer. Parquet has checksums for pages, and none for the footer.

The footer contains it itself, as the value of the key `KEY`: the XXH64 of the footer's bytes, 16 hexadecimal
digits, computed while the value is sixteen zeros. The writer writes the zeros, and `seal` puts the checksum
in their place. Any Parquet reader ignores it.
"""

from __future__ import annotations

from functools import lru_cache
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import xxhash

from elanus.storage.port import CorruptObject

KEY = "elanus.footer_xxh64"
UNSEALED = "0" * 16
_MAGIC = b"PAR1"
_END_BYTES = 8
"""After the footer: its length in 4 bytes, little-endian, and the magic."""
_TAIL_BYTES = 64 * 1024
"""Fetched at once from the end of a file: as much as pyarrow fetches, and enough for nearly every footer."""
_REMEMBERED_BYTES_MAX = 8 * 1024
_REMEMBERED_MAX = 256
"""A file is opened several times in a row, for its columns one after the other. Parsing a short footer takes
longer than the rest of opening it."""


def seal(file: Path) -> None:
    """Put the checksum into the footer of a complete local file, which contains `KEY` with `UNSEALED`."""
    with file.open("r+b") as parquet:
        end = parquet.seek(-_END_BYTES, 2)
        begin = end - int.from_bytes(parquet.read(4), "little")
        parquet.seek(begin)
        footer = parquet.read(end - begin)
        at = _value_at(footer)
        parquet.seek(begin + at)
        parquet.write(xxhash.xxh64_hexdigest(footer).encode())


def read_footer(path: str, data: pa.NativeFile) -> pq.FileMetaData:
    """Read and check the footer of the Parquet object that ``data`` reads; ``path`` names it in errors.

    A file of an earlier release has no checksum, and is not checked. Raises `CorruptObject`, and the errors
    of pyarrow for a footer that does not parse.
    """
    size_bytes = data.size()
    tail = _from_end(data, size_bytes, _TAIL_BYTES)
    if tail[-4:] != _MAGIC or len(tail) < _END_BYTES:
        raise CorruptObject(f"{path} does not end as a Parquet file")
    footer_bytes = int.from_bytes(tail[-_END_BYTES:-4], "little")
    if footer_bytes + _END_BYTES > size_bytes:
        raise CorruptObject(f"{path} has {size_bytes} bytes, and its footer would have {footer_bytes}")
    if footer_bytes + _END_BYTES > len(tail):
        tail = _from_end(data, size_bytes, footer_bytes + _END_BYTES)
    footer = tail[-_END_BYTES - footer_bytes :]
    metadata = _parsed(footer) if footer_bytes > _REMEMBERED_BYTES_MAX else _remembered(footer)
    if metadata is None:
        raise CorruptObject(f"{path} is damaged: its footer does not match its checksum")
    return metadata


def _from_end(data: pa.NativeFile, size_bytes: int, length: int) -> bytes:
    length = min(length, size_bytes)
    return bytes(data.read_at(length, size_bytes - length))


def _parsed(end: bytes) -> pq.FileMetaData | None:
    """Parse the footer in the ``end`` of a file. None: it does not match its checksum."""
    return pq.read_metadata(pa.BufferReader(end)) if _is_whole(end[:-_END_BYTES]) else None


_remembered = lru_cache(_REMEMBERED_MAX)(_parsed)


def _is_whole(footer: bytes) -> bool:
    if KEY.encode() not in footer:
        return True
    at = _value_at(footer)
    value, zeros = footer[at : at + len(UNSEALED)], UNSEALED.encode()
    whole = footer[:at] + zeros + footer[at + len(zeros) :]
    return xxhash.xxh64_hexdigest(whole).encode() == value


def _value_at(footer: bytes) -> int:
    """Return where the value of `KEY` begins: after the key, its value's field header and length, a byte
    each."""
    return footer.rindex(KEY.encode()) + len(KEY) + 2
