"""A user's file: read by ranges, never mapped, and known to be the one that was surveyed."""

from __future__ import annotations

import io
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import cast

import pyarrow as pa

from elanus.core.errors import InvalidParameter
from elanus.storage.port import ObjectInfo, ObjectMissing, ObjectStore

READ_BYTES = 4 * 1024 * 1024
"""Read at a time."""


@dataclass(frozen=True, slots=True)
class InputFile:
    """``store``: the one below which imports are allowed."""

    store: ObjectStore
    info: ObjectInfo

    @property
    def name(self) -> str:
        return self.info.path

    @property
    def size_bytes(self) -> int:
        return self.info.size_bytes

    def native(self) -> pa.NativeFile:
        """Return the file opened for Arrow's readers."""
        return self.store.open_unmapped(self.name)

    @contextmanager
    def open(self) -> Iterator[io.BufferedReader[io.RawIOBase]]:
        """Open the file for reading lines and pieces."""
        with io.BufferedReader(cast(io.RawIOBase, self.native()), READ_BYTES) as file:
            yield file

    def content(self) -> bytes:
        with self.native() as file:
            return cast(bytes, file.read())


def input_file(store: ObjectStore, name: str) -> InputFile:
    """Return a file as it is now. Raises `InvalidParameter` for one that does not exist."""
    try:
        return InputFile(store, store.head(name))
    except ObjectMissing:
        root = store.url.partition("?")[0]  # a client need not know the endpoint, nor where its keys are
        raise InvalidParameter(
            f"{name}: no such file in the import directory {root}: name files relative to it"
        ) from None
    except ValueError as error:
        raise InvalidParameter(f"{name} is no path below the import directory: {error}") from None


def check_version(file: InputFile, surveyed: str) -> None:
    """Raises `InvalidParameter` if the file is not the one that was surveyed."""
    if file.info.version != surveyed:
        raise InvalidParameter(f"{file.name} changed while the import ran; run it again")
