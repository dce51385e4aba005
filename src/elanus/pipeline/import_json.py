"""JSON files of an import: a list of rows, or an object with the key ``rows``; and JSON lines, a row a line.

A JSON list is decoded as a whole, so its size is limited; JSON lines are cut into groups at ends of lines.
Neither is read to be cut: how many rows there are is bounded by their bytes
(`elanus.pipeline.import_bounds`). A key that is no field of the collection goes to the dynamic field. Where a
row has ``$meta`` itself, an object or a string that contains one, its keys are added. A struct array is a
list of objects, or a list for each field of the structs under its name, ``clips[title]``.
"""

from __future__ import annotations

import io
import re
from codecs import BOM_UTF8
from collections.abc import Iterator, Mapping, Sequence
from functools import partial
from typing import IO

import msgspec
import pyarrow as pa

from elanus.core.errors import InvalidParameter
from elanus.core.schema import DYNAMIC_FIELD, CollectionSchema
from elanus.core.structs import struct_and_name
from elanus.pipeline.import_bounds import json_rows_max
from elanus.pipeline.import_columns import Place
from elanus.pipeline.import_input import InputFile
from elanus.pipeline.import_json_rows import first_malformed
from elanus.pipeline.import_plan import RowGroup
from elanus.pipeline.import_texts import JSON_NULL, MALFORMED, Text, column_of, fault_of

JSON_BYTES_MAX = 1 << 30
"""A JSON list larger than this is refused: it would have to be in memory as a whole."""
ROW_BYTES_MAX = 256 << 20
"""A line that is longer is no row: half of the largest request that inserts rows."""
_GROUP_BYTES = 32 * 1024 * 1024
_PIECE_BYTES = 1 << 20
_BEGIN = re.compile(rb"\s*\{")

Row = dict[str, msgspec.Raw]


class _Wrapped(msgspec.Struct):
    rows: list[msgspec.Raw]


_rows = msgspec.json.Decoder(list[msgspec.Raw])
_list = msgspec.json.Decoder(list[Row])  # at import: decoders of dataclasses are not thread-safe when made
_wrapped = msgspec.json.Decoder(_Wrapped)
_row = msgspec.json.Decoder(Row)


class JsonSource:
    """A file with a list of rows. Implements `elanus.pipeline.import_sources.Source`.

    The whole list is in memory as the texts of its rows, and what is in the rows batch by batch: a dict for
    each row would take thirty times the space of short ones.
    """

    def __init__(self, file: InputFile, schema: CollectionSchema) -> None:
        """Raises `InvalidParameter` for a file that is too large."""
        if file.size_bytes > JSON_BYTES_MAX:
            raise InvalidParameter(
                f"{file.name} has {file.size_bytes} bytes; a JSON list may have {JSON_BYTES_MAX}: write the "
                "rows as JSON lines (.jsonl), or as Parquet"
            )
        self._name = file.name
        self._file = file
        self._schema = schema

    def schemas(self) -> Iterator[pa.Schema]:
        return iter(())

    def groups(self) -> Iterator[RowGroup]:
        yield RowGroup(0, 0, json_rows_max(self._schema, self._file.size_bytes), is_counted=False)

    def batches(self, group: RowGroup, batch_rows: int) -> Iterator[Sequence[Text]]:
        rows = self._rows()
        for first in range(0, len(rows), batch_rows):
            yield rows[first : first + batch_rows]

    def columns(self, rows: Sequence[Text], place: Place) -> pa.RecordBatch:
        return batch_of(_decoded(rows, place), self._schema, place)

    def place(self, group: RowGroup) -> Place:
        return Place(self._name, group.number, 0)

    def _rows(self) -> list[msgspec.Raw]:
        """Raises `InvalidParameter` for a file that is no list of objects."""
        content = self._file.content().removeprefix(BOM_UTF8)
        try:
            if _BEGIN.match(content):
                return _wrapped.decode(content).rows
            return _rows.decode(content)
        except MALFORMED as error:
            if (found := first_malformed(content)) is not None:
                row, why = found
                raise InvalidParameter(
                    f"{self._name}, row {row} is no JSON object: {why or error}"
                ) from error
            raise InvalidParameter(
                f"{self._name} is neither a JSON list of rows nor an object with such a list as rows: "
                f"{error}; give a file with one row a line the ending .jsonl"
            ) from error


class JsonLinesSource:
    """A file with a row a line. Implements `elanus.pipeline.import_sources.Source`.

    A group is the lines that begin within a range of bytes, so that tasks find theirs without the others.
    """

    def __init__(self, file: InputFile, schema: CollectionSchema, group_bytes: int = _GROUP_BYTES) -> None:
        self._name = file.name
        self._file = file
        self._schema = schema
        self._group_bytes = group_bytes
        self._before: dict[int, int] = {}

    def schemas(self) -> Iterator[pa.Schema]:
        return iter(())

    def groups(self) -> Iterator[RowGroup]:
        left = self._file.size_bytes
        for number in range(-(-left // self._group_bytes)):
            # All lines but the last one end within the range: the last one is the row that the bound adds.
            bound = json_rows_max(self._schema, min(left, self._group_bytes))
            yield RowGroup(number, 0, bound, is_counted=False)
            left -= self._group_bytes

    def batches(self, group: RowGroup, batch_rows: int) -> Iterator[Sequence[Text]]:
        lines = self._lines(group.number)
        for first in range(0, len(lines), batch_rows):
            yield lines[first : first + batch_rows]

    def columns(self, rows: Sequence[Text], place: Place) -> pa.RecordBatch:
        return batch_of(_decoded(rows, place), self._schema, place)

    def place(self, group: RowGroup) -> Place:
        return Place(self._name, group.number, 0, partial(self._rows_before, group.number))

    def _rows_before(self, group: int) -> int:
        if group not in self._before:
            self._before[group] = sum(len(self._lines(number)) for number in range(group))
        return self._before[group]

    def _lines(self, number: int) -> list[bytes]:
        """Return the lines that begin in a range, without empty ones."""
        begin, end = number * self._group_bytes, (number + 1) * self._group_bytes
        with self._file.open() as file:
            if begin:
                file.seek(begin - 1)
                self._pass_line(file)  # it began before
                begin = file.tell()
            if begin >= end:
                return []
            # Its lines are those that begin before the end, and the last one has a bound of its own.
            content = file.read(end - begin)
            lines = io.BytesIO(content).readlines()
            if lines and not content.endswith(b"\n"):
                lines[-1] += self._line_end(file, len(lines[-1]))
        if number == 0:
            lines[0] = lines[0].removeprefix(BOM_UTF8)
        return [line for line in lines if not line.isspace() and line]

    def _pass_line(self, file: IO[bytes]) -> None:
        """Move behind the end of a line, without holding it."""
        while (piece := file.readline(_PIECE_BYTES)) and not piece.endswith(b"\n"):
            pass

    def _line_end(self, file: IO[bytes], begun_bytes: int) -> bytes:
        """Return the rest of a line. Raises `InvalidParameter` for one that is too long."""
        rest = file.readline(ROW_BYTES_MAX)
        if begun_bytes + len(rest) > ROW_BYTES_MAX:
            raise InvalidParameter(
                f"{self._name} has a line of more than {ROW_BYTES_MAX} bytes: write a row a line, or give a "
                "JSON list the ending .json"
            )
        return rest


def _decoded(texts: Sequence[Text], place: Place) -> list[Row]:
    """Return rows as their members' texts. Raises `InvalidParameter` about the first that is no object."""
    try:
        return list(map(_row.decode, texts))
    except MALFORMED:
        pass
    for at, text in enumerate(texts):
        try:
            _row.decode(text)
        except MALFORMED as error:
            row = place.row(at)
            why = fault_of(bytes(text), error)
            raise InvalidParameter(f"{place.file}, row {row} is no JSON object: {why}") from error
    raise AssertionError("every row decodes by itself")


def batch_of(rows: Sequence[Row], schema: CollectionSchema, place: Place) -> pa.RecordBatch:
    """Return rows as columns that a Parquet file could have. A key that no row has is no column; rows
    without any key are a batch without columns.

    Raises `InvalidParameter` about the first value of the wrong type.
    """
    rows = _split(rows, schema, place) if schema.structs else rows
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
    if not columns:  # a batch is as long as its columns, if it has any
        return pa.RecordBatch.from_struct_array(pa.array([{}] * len(rows), pa.struct([])))
    return pa.RecordBatch.from_pydict(columns)


def _split(rows: Sequence[Row], schema: CollectionSchema, place: Place) -> list[Row]:
    """Return rows in which a struct array is one list for each field of its structs."""
    split = [dict(row) for row in rows]
    for struct in schema.structs:
        members = own_names(schema, struct.name)
        for at, row in enumerate(split):
            if struct.name in row:
                row.update(members_of(row.pop(struct.name), struct.name, members, place, at))
    return split


def own_names(schema: CollectionSchema, struct: str) -> dict[str, str]:
    """Return the names of the structs' fields within a struct, by the names of the collection's fields."""
    names = {field.name: struct_and_name(field.name) for field in schema.members(struct)}
    return {name: parts[1] for name, parts in names.items() if parts is not None}


def members_of(value: msgspec.Raw, struct: str, members: Mapping[str, str], place: Place, at: int) -> Row:
    """Return a list of structs as one list for each of their fields; a JSON null as a null for each.

    ``members``: see `own_names`. ``at``: the row in its batch. Raises `InvalidParameter`.
    """
    if bytes(value) == JSON_NULL:
        return dict.fromkeys(members, value)
    try:
        structs = _list.decode(value)
    except MALFORMED as error:
        place.refuse(struct, at, f"is no list of objects: {error}")
    expected = set(members.values())
    for one in structs:
        if one.keys() != expected:
            place.refuse(
                struct, at, f"has a struct with {', '.join(one)}: give {', '.join(members.values())}"
            )
    return {
        name: msgspec.Raw(b"[" + b",".join(bytes(one[own]) for one in structs) + b"]")
        for name, own in members.items()
    }


def _dynamic(row: Row, schema: CollectionSchema, place: Place, at: int) -> bytes:
    own = {name: value for name, value in row.items() if name not in schema.by_name}
    given = row.get(DYNAMIC_FIELD)
    if given is not None:
        content = bytes(given)
        try:
            if content[:1] == b'"':
                content = msgspec.json.decode(content, type=str).encode()
            own = _row.decode(content) | own
        except MALFORMED as error:
            place.refuse(DYNAMIC_FIELD, at, f"is no JSON object: {fault_of(content, error)}")
    return msgspec.json.encode(own)
