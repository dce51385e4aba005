"""NumPy files of an import: each is a column, named like its field; those of a directory are one table.

Accepted: numbers and booleans in one dimension; texts (also of JSON) as unicode or bytes; vectors in two
dimensions: floats, or the bytes that are stored (uint8) for binary vectors and those of half precision, which
may also be float16, or uint16 for bfloat16; signed bytes as int8. Pickled objects are refused.
"""

from __future__ import annotations

import sys
import tokenize
from collections.abc import Iterator, Sequence
from pathlib import PurePosixPath
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from elanus.core.errors import InvalidParameter
from elanus.core.schema import CollectionSchema, DataType, FieldSchema
from elanus.pipeline.import_input import InputFile
from elanus.pipeline.import_place import Place
from elanus.pipeline.import_plan import RowGroup

_GROUP_BYTES = 32 * 1024 * 1024
_NO_HEADER = (
    ValueError,
    TypeError,
    LookupError,
    OverflowError,
    SyntaxError,
    tokenize.TokenError,
    RecursionError,
    MemoryError,
)
"""The errors of NumPy about a header: it evaluates a Python literal, however deep that is."""
_HEADER_BYTES_MAX = 10_000
"""NumPy's bound, which it checks when it has read the header."""
_ROW_BYTES_MAX = 256 << 20
"""Far more than any field holds. Lists of Arrow have less than 2^31 elements."""
_BITS16 = (DataType.FLOAT16_VECTOR, DataType.BFLOAT16_VECTOR)


_HEADERS = {
    (1, 0): (2, np.lib.format.read_array_header_1_0),
    (2, 0): (4, np.lib.format.read_array_header_2_0),
}
"""By the version of the format: the bytes of the header's length, and what reads that and the header."""


class _Column:
    """A file: its header, and rows read from it. Raises `InvalidParameter` for one that is no plain array."""

    def __init__(self, of: InputFile) -> None:
        self.name = name = of.name
        self._file = of
        with of.open() as file:
            try:
                version = np.lib.format.read_magic(file)
                if version not in _HEADERS:
                    raise InvalidParameter(
                        f"{name} has format version {version[0]}.{version[1]}, which NumPy writes for "
                        "structured arrays: save the column with a plain dtype"
                    )
                length_bytes, read = _HEADERS[version]
                length_at = file.tell()
                header_bytes = int.from_bytes(file.read(length_bytes), "little")
                if header_bytes > _HEADER_BYTES_MAX:
                    raise InvalidParameter(
                        f"{name} cannot be read as NumPy: it has a header of {header_bytes} bytes, at most "
                        f"{_HEADER_BYTES_MAX} are accepted"
                    )
                file.seek(length_at)
                self.shape, is_fortran, self.dtype = read(file)
            except _NO_HEADER as error:
                raise InvalidParameter(f"{name} cannot be read as NumPy: {error}") from error
            self._begin = file.tell()
        if self.dtype.hasobject:
            raise InvalidParameter(f"{name} holds Python objects: save the column with a plain dtype")
        if len(self.shape) not in (1, 2):
            raise InvalidParameter(f"{name} has shape {self.shape}: give (rows,) or (rows, n)")
        if is_fortran and len(self.shape) == 2:
            raise InvalidParameter(
                f"{name} is stored column by column (Fortran order): save numpy.ascontiguousarray(...) of it"
            )
        if self.shape[0] < 0 or (len(self.shape) == 2 and self.shape[1] < 1) or not self.dtype.itemsize:
            raise InvalidParameter(
                f"{name} has shape {self.shape} and dtype {self.dtype}: rows of no bytes hold no values"
            )
        self.row_bytes = self.dtype.itemsize * (self.shape[1] if len(self.shape) == 2 else 1)
        if self.row_bytes > _ROW_BYTES_MAX:
            raise InvalidParameter(
                f"{name} has shape {self.shape} and dtype {self.dtype}: a row of {self.row_bytes} bytes is "
                f"too large, the limit is {_ROW_BYTES_MAX}"
            )
        if of.size_bytes < self._begin + self.shape[0] * self.row_bytes:
            raise InvalidParameter(f"{name} ends before its {self.shape[0]} rows")

    def read(self, first: int, rows: int) -> npt.NDArray[Any]:
        with self._file.native() as file:
            file.seek(self._begin + first * self.row_bytes)
            content = file.read(rows * self.row_bytes)
        return np.frombuffer(content, self.dtype).reshape(-1, *self.shape[1:])


class NumpySource:
    """The columns of a directory. Implements `elanus.pipeline.import_sources.Source`."""

    def __init__(self, files: Sequence[InputFile], schema: CollectionSchema) -> None:
        self._schema = schema
        self._name = files[0].name
        self._columns = {PurePosixPath(file.name).stem: _Column(file) for file in files}
        by_rows = {column.shape[0]: column.name for column in self._columns.values()}
        if len(by_rows) > 1:
            (few, one), (many, other), *_ = sorted(by_rows.items())
            raise InvalidParameter(f"{one} has {few} rows, {other} has {many}: columns have as many each")
        (self._rows,) = by_rows

    def schemas(self) -> Iterator[pa.Schema]:
        yield next(self._read(0, 0)).schema

    def groups(self) -> Iterator[RowGroup]:
        row_bytes = max(1, sum(column.row_bytes for column in self._columns.values()))
        step = max(1, _GROUP_BYTES // row_bytes)
        for number, first in enumerate(range(0, self._rows, step)):
            yield RowGroup(number, first, min(step, self._rows - first))

    def batches(self, group: RowGroup, batch_rows: int) -> Iterator[pa.RecordBatch]:
        end = group.first_row + group.rows
        for first in range(group.first_row, end, batch_rows):
            yield from self._read(first, min(batch_rows, end - first))

    def columns(self, rows: pa.RecordBatch, place: Place) -> pa.RecordBatch:
        return rows

    def place(self, group: RowGroup) -> Place:
        return Place(self._name, group.number, group.first_row)

    def _read(self, first: int, rows: int) -> Iterator[pa.RecordBatch]:
        yield pa.RecordBatch.from_pydict(
            {
                name: _as_column(self._schema.by_name.get(name), column, column.read(first, rows), first)
                for name, column in self._columns.items()
            }
        )


def _as_column(
    field: FieldSchema | None, column: _Column, values: npt.NDArray[Any], first_row: int
) -> pa.Array:
    """Raises `InvalidParameter`. ``first_row``: the number of the first value."""
    if field is not None and field.data_type in _BITS16 and values.dtype.itemsize == 2:
        values = values.view(np.uint8)  # the bytes as they are stored
    if values.ndim == 2:
        flat = np.ascontiguousarray(values.astype(values.dtype.newbyteorder("="))).reshape(-1)
        width = values.shape[1]
        elements = _as_texts(column, flat, first_row, width) if flat.dtype.kind == "U" else pa.array(flat)
        return pa.FixedSizeListArray.from_arrays(elements, width)
    if values.dtype.kind in "SU":
        return _as_texts(column, values, first_row, 1)
    if values.dtype.kind not in "biuf":
        raise InvalidParameter(f"{column.name} has dtype {values.dtype}: give numbers, booleans or texts")
    return pa.array(values.astype(values.dtype.newbyteorder("=")))


def _as_texts(column: _Column, values: npt.NDArray[Any], first_row: int, width: int) -> pa.Array:
    """Return texts, ``width`` to a row, as ``string``. Raises `InvalidParameter`."""
    if values.dtype.kind == "U":
        _check_characters(column, values, first_row, width)
    try:
        return pa.array(values.tolist(), pa.string())
    except (pa.ArrowInvalid, UnicodeError) as error:
        for at, value in enumerate(values.tolist()):
            try:
                pa.array([value], pa.string())
            except (pa.ArrowInvalid, UnicodeError):
                row = first_row + at // width
                raise InvalidParameter(f"{column.name}, row {row}: {value!r} is no text in UTF-8") from None
        raise InvalidParameter(f"{column.name} cannot be read as texts: {error}") from error


def _check_characters(column: _Column, texts: npt.NDArray[np.str_], first_row: int, width: int) -> None:
    """Raise `InvalidParameter` for a code that is no character: NumPy makes a Python text of it, which
    Python and Arrow take for a valid one."""
    codes = texts.astype(texts.dtype.newbyteorder("="), copy=False).view(np.uint32)
    wrong = codes > sys.maxunicode
    if wrong.any():
        at = int(np.argmax(wrong))
        row = first_row + at // (width * (len(codes) // len(texts)))
        raise InvalidParameter(
            f"{column.name}, row {row}: {int(codes[at]):#x} is no character: the file is damaged, or its "
            "dtype is another one"
        )
