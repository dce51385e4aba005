"""One index, one file.

::

    faiss's own serialisation (graph and inverted-file indexes; nothing for the others)
    named arrays, raw little-endian, each at a multiple of 64 bytes
    footer: JSON (format, index, data and metric type, dimension, rows, the arrays' places)
    footer length, 8 bytes little-endian · magic, 8 bytes

faiss's part is first because faiss reads from the start of a file and stops at the end of its data. The
footer is last because it is written last: a file without it was never finished. Loading checks that the file
holds the requested index.

A memory-mapped index shares the page cache instead of filling the heap: loading takes a millisecond, pages
are read when they are searched, and the kernel may evict them. The file may be unlinked while it is
mapped, but never truncated.
"""

from __future__ import annotations

import json
import os
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, BinaryIO

import faiss
import numpy as np
import numpy.typing as npt

from elanus.core.errors import Internal
from elanus.index.spec import IndexSpec

FORMAT = 1
MAGIC = b"ELANUSIX"
ALIGNMENT_BYTES = 64
TAIL_BYTES = 16


@dataclass(frozen=True)
class IndexFileContent:
    """The content of a file: the faiss index, if there is one, and the arrays next to it."""

    spec: IndexSpec
    rows: int
    faiss_index: Any
    arrays: Mapping[str, npt.NDArray[Any]]


def write_index_file(path: Path, content: IndexFileContent) -> None:
    """Write the file and flush it to disk. Raises `OSError`."""
    if content.faiss_index is None:
        path.write_bytes(b"")
    else:
        _write_faiss(path, content.faiss_index)
    with path.open("ab") as file:
        places = {name: _append(file, array) for name, array in content.arrays.items()}
        footer = _footer(content.spec, content.rows) | {
            "faiss": content.faiss_index is not None,
            "arrays": places,
        }
        text = json.dumps(footer).encode()
        file.write(text + len(text).to_bytes(8, "little") + MAGIC)
        file.flush()
        os.fsync(file.fileno())


def read_index_file(path: Path, spec: IndexSpec) -> IndexFileContent:
    """Return the file's content, mapped if the spec says so. Raises `Internal` for any other file."""
    footer = _read_footer(path)
    expected = _footer(spec, footer.get("rows", 0))
    footer.setdefault("data_type", expected["data_type"])  # early files do not have it
    if {name: footer.get(name) for name in expected} != expected:
        raise Internal(f"index file {path} holds {footer}, not {expected}")
    return IndexFileContent(
        spec=spec,
        rows=footer["rows"],
        faiss_index=_read_faiss(path, spec.memory_mapped) if footer["faiss"] else None,
        arrays={
            name: _read_array(path, place, spec.memory_mapped) for name, place in footer["arrays"].items()
        },
    )


def _footer(spec: IndexSpec, rows: int) -> dict[str, Any]:
    return {
        "format": FORMAT,
        "index_type": spec.index_type,
        "data_type": spec.data_type.name,
        "metric_type": "" if spec.metric is None else str(spec.metric),
        "dim": spec.dim,
        "rows": rows,
    }


def _append(file: BinaryIO, array: npt.NDArray[Any]) -> dict[str, Any]:
    file.seek(0, os.SEEK_END)
    file.write(b"\0" * (-file.tell() % ALIGNMENT_BYTES))
    place = {"offset": file.tell(), "shape": array.shape, "dtype": array.dtype.newbyteorder("<").str}
    np.ascontiguousarray(array).tofile(file)
    return place


def _read_footer(path: Path) -> dict[str, Any]:
    with path.open("rb") as file:
        size = file.seek(0, os.SEEK_END)
        file.seek(max(0, size - TAIL_BYTES))
        tail = file.read()
        length = int.from_bytes(tail[:8], "little")
        if tail[8:] != MAGIC or length > size - TAIL_BYTES:
            raise Internal(
                f"index file {path} has no footer: it was not written to its end, or is something else"
            )
        file.seek(size - TAIL_BYTES - length)
        return _parsed(path, file.read(length))


def _parsed(path: Path, footer: bytes) -> dict[str, Any]:
    try:
        parsed: dict[str, Any] = json.loads(footer)
    except ValueError as error:
        raise Internal(f"index file {path} has a damaged footer: {error}") from error
    return parsed


def _write_faiss(path: Path, index: Any) -> None:
    try:
        faiss.write_index(index, str(path))
    except RuntimeError as error:  # faiss has one error for everything
        raise OSError(f"index file {path} cannot be written: {error}") from error


def _read_faiss(path: Path, mapped: bool) -> Any:
    try:
        return faiss.read_index(str(path), faiss.IO_FLAG_MMAP_IFC if mapped else 0)
    except RuntimeError as error:
        raise Internal(f"index file {path} cannot be read: {error}") from error


def _read_array(path: Path, place: dict[str, Any], mapped: bool) -> npt.NDArray[Any]:
    shape = tuple(place["shape"])
    if 0 in shape:
        return np.empty(shape, dtype=place["dtype"])
    if mapped:
        return np.memmap(path, place["dtype"], mode="r", offset=place["offset"], shape=shape).view(np.ndarray)
    count = int(np.prod(shape))
    return np.fromfile(path, place["dtype"], count=count, offset=place["offset"]).reshape(shape)
