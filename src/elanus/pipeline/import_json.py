"""JSON files of an import: a list of rows, or an object with the key ``rows``; and JSON lines, a row a line.

A JSON list is decoded as a whole, so its size is limited; JSON lines are cut into groups at ends of lines.
A key that is no field of the collection goes to the dynamic field. Where a row has ``$meta`` itself, an
object or a string that contains one, its keys are added.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path

import msgspec
import pyarrow as pa

from elanus.core.errors import InvalidParameter
from elanus.core.schema import DYNAMIC_FIELD, CollectionSchema
from elanus.pipeline.import_columns import Place
from elanus.pipeline.import_plan import RowGroup
from elanus.pipeline.import_texts import JSON_NULL, column_of

JSON_BYTES_MAX = 1 << 30
"""A JSON list larger than this is refused: it would have to be in memory as a whole."""
_GROUP_BYTES = 32 * 1024 * 1024
_READ_BYTES = 8 * 1024 * 1024

Row = dict[str, msgspec.Raw]


class _Wrapped(msgspec.Struct):
    rows: list[Row]


_list = msgspec.json.Decoder(list[Row])  # at import: decoders of dataclasses are not thread-safe when made
_wrapped = msgspec.json.Decoder(_Wrapped)
_row = msgspec.json.Decoder(Row)


class JsonSource:
    """A file with a list of rows. Implements `elanus.pipeline.import_sources.Source`."""

    def __init__(self, name: str, path: Path, schema: CollectionSchema) -> None:
        self._name = name
        self._path = path
        self._schema = schema

    def schemas(self) -> Iterator[pa.Schema]:
        return iter(())

    def groups(self) -> Iterator[RowGroup]:
        yield RowGroup(0, 0, len(self._rows()))

    def batches(self, group: RowGroup, batch_rows: int) -> Iterator[pa.RecordBatch]:
        rows = self._rows()
        for first in range(0, len(rows), batch_rows):
            yield batch_of(rows[first : first + batch_rows], self._schema, Place(self._name, 0, first))

    def _rows(self) -> list[Row]:
        """Raises `InvalidParameter` for a file that is too large, or no list of objects."""
        size_bytes = self._path.stat().st_size
        if size_bytes > JSON_BYTES_MAX:
            raise InvalidParameter(
                f"{self._name} has {size_bytes} bytes; a JSON list may have {JSON_BYTES_MAX}: write the rows "
                "as JSON lines (.jsonl), or as Parquet"
            )
        content = self._path.read_bytes()
        try:
            if content.lstrip()[:1] == b"{":
                return _wrapped.decode(content).rows
            return _list.decode(content)
        except (msgspec.MsgspecError, UnicodeDecodeError) as error:
            raise InvalidParameter(
                f"{self._name} is neither a JSON list of rows nor an object with such a list as rows: {error}"
            ) from error


class JsonLinesSource:
    """A file with a row a line. Implements `elanus.pipeline.import_sources.Source`.

    A group is the lines that begin within a range of bytes, so that tasks find theirs without the others.
    """

    def __init__(
        self, name: str, path: Path, schema: CollectionSchema, group_bytes: int = _GROUP_BYTES
    ) -> None:
        self._name = name
        self._path = path
        self._schema = schema
        self._group_bytes = group_bytes

    def schemas(self) -> Iterator[pa.Schema]:
        return iter(())

    def groups(self) -> Iterator[RowGroup]:
        first_row = 0
        for number in range(-(-self._path.stat().st_size // self._group_bytes)):
            rows = len(self._lines(number))
            yield RowGroup(number, first_row, rows)
            first_row += rows

    def batches(self, group: RowGroup, batch_rows: int) -> Iterator[pa.RecordBatch]:
        lines = self._lines(group.number)
        for first in range(0, len(lines), batch_rows):
            place = Place(self._name, group.number, group.first_row + first)
            yield batch_of(self._decoded(lines[first : first + batch_rows], place), self._schema, place)

    def _decoded(self, lines: Sequence[bytes], place: Place) -> list[Row]:
        try:
            return list(map(_row.decode, lines))
        except (msgspec.MsgspecError, UnicodeDecodeError):
            pass
        for at, line in enumerate(lines):
            try:
                _row.decode(line)
            except (msgspec.MsgspecError, UnicodeDecodeError) as error:
                row = place.first_row + at
                raise InvalidParameter(f"{self._name}, row {row} is no JSON object: {error}") from error
        raise AssertionError("every line decodes by itself")

    def _lines(self, number: int) -> list[bytes]:
        """The lines that begin in a range, without empty ones."""
        begin, end = number * self._group_bytes, (number + 1) * self._group_bytes
        with self._path.open("rb", buffering=_READ_BYTES) as file:
            if begin:
                file.seek(begin - 1)
                file.readline()  # it began before
                begin = file.tell()
            if begin >= end:
                return []
            hint = end - begin - 1  # a line is read as long as those before it have no more bytes
            lines = file.readlines(hint) if hint else [file.readline()]
        return [line for line in lines if not line.isspace() and line]


def batch_of(rows: Sequence[Row], schema: CollectionSchema, place: Place) -> pa.RecordBatch:
    """Return rows as columns that a Parquet file could have. A key that no row has is no column.

    Raises `InvalidParameter` about the first value of the wrong type.
    """
    names = dict.fromkeys(name for row in rows for name in row)
    columns = {}
    for field in schema.fields:
        if field.name in names and not field.is_dynamic:
            texts = [row.get(field.name, JSON_NULL) for row in rows]
            columns[field.name] = column_of(field, texts, place.refuse)
    extra = [name for name in names if name not in schema.by_name]
    if schema.dynamic_field is not None and (extra or DYNAMIC_FIELD in names):
        columns[DYNAMIC_FIELD] = pa.array([_dynamic(row, schema, place, at) for at, row in enumerate(rows)])
    elif extra:
        columns[extra[0]] = pa.nulls(len(rows))  # refused by its name with the other columns
    return pa.RecordBatch.from_pydict(columns)


def _dynamic(row: Row, schema: CollectionSchema, place: Place, at: int) -> bytes:
    own = {name: value for name, value in row.items() if name not in schema.by_name}
    given = row.get(DYNAMIC_FIELD)
    if given is not None:
        content = bytes(given)
        try:
            if content[:1] == b'"':
                content = msgspec.json.decode(content, type=str).encode()
            own = _row.decode(content) | own
        except msgspec.MsgspecError as error:
            place.refuse(DYNAMIC_FIELD, at, f"is no JSON object: {error}")
    return msgspec.json.encode(own)
