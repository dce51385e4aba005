"""CSV files of an import: a header with the fields' names, values as text, anything nested as JSON.

An empty value without quotes is a null, or the text that the import names instead; in a text field that may
not be null, this text is a value. A struct array is a JSON list of objects, in a column of its name.
"""

from __future__ import annotations

import contextlib
import csv
import io
from collections import Counter
from collections.abc import Iterator

import msgspec
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.csv

from elanus.core.errors import InvalidParameter
from elanus.core.imports import CsvFormat
from elanus.core.schema import DYNAMIC_FIELD, CollectionSchema, FieldSchema
from elanus.core.types import Family
from elanus.pipeline.import_bounds import csv_rows_max
from elanus.pipeline.import_columns import Place
from elanus.pipeline.import_input import InputFile
from elanus.pipeline.import_json import members_of, own_names
from elanus.pipeline.import_plan import RowGroup
from elanus.pipeline.import_texts import JSON_NULL, column_of

_BLOCK_BYTES = 8 * 1024 * 1024
COLUMNS_MAX = 1 << 16
"""As many keys as a row of the dynamic field could have bytes."""
_TAIL_BYTES = 4096
_SHOWN_MAX = 60
_TOO_LONG = "straddles two block boundaries"


class CsvSource:
    """One group: which line ends are inside quotes is known only to a reader from the start of the file.

    Implements `elanus.pipeline.import_sources.Source`.
    """

    def __init__(self, file: InputFile, schema: CollectionSchema, csv: CsvFormat) -> None:
        self._name = file.name
        self._file = file
        self._schema = schema
        self._csv = csv
        self._parsing = pyarrow.csv.ParseOptions(delimiter=csv.separator, newlines_in_values=True)

    def schemas(self) -> Iterator[pa.Schema]:
        return iter(())

    def groups(self) -> Iterator[RowGroup]:
        size_bytes = self._file.size_bytes
        yield RowGroup(0, 0, csv_rows_max(self._schema, size_bytes) if size_bytes else 0, is_counted=False)

    def batches(self, group: RowGroup, batch_rows: int) -> Iterator[pa.RecordBatch]:
        for texts in self._texts():
            for start in range(0, texts.num_rows, batch_rows):
                yield texts.slice(start, batch_rows)

    def place(self, group: RowGroup) -> Place:
        return Place(self._name, group.number, 0)

    def _texts(self) -> Iterator[pa.RecordBatch]:
        if not self._file.size_bytes:
            return
        reading = pyarrow.csv.ReadOptions(use_threads=False, block_size=_BLOCK_BYTES)
        texts = _as_texts(self._header(), self._csv.null)
        last = ""
        with self._read(reading, texts) as reader:
            for rows in reader:
                if rows.num_rows:
                    last = rows.column(rows.num_columns - 1)[-1].as_py() or ""
                yield rows
        self._check_closed(last)

    @contextlib.contextmanager
    def _read(
        self, reading: pyarrow.csv.ReadOptions, converting: pyarrow.csv.ConvertOptions | None = None
    ) -> Iterator[pyarrow.csv.CSVStreamingReader]:
        with (
            _with_remedy(self._name),
            self._file.native() as file,
            pyarrow.csv.open_csv(file, reading, self._parsing, converting) as reader,
        ):
            yield reader

    def _check_closed(self, last: str) -> None:
        """Raises `InvalidParameter` if the last value has swallowed the rows behind it, as nothing closes its
        quote."""
        if "\n" not in last and "\r" not in last:
            return
        with self._file.native() as file:
            file.seek(max(0, self._file.size_bytes - _TAIL_BYTES))
            end = file.read().rstrip(b"\r\n")
        if not end.endswith(b'"'):
            raise InvalidParameter(
                f"{self._name} cannot be read as CSV: nothing closes the quote of the value that begins with "
                f"{last[:_SHOWN_MAX]!r}: close it, or write quotes inside of a value twice"
            )

    def _header(self) -> list[str]:
        """Raises `InvalidParameter` for a name that is there twice: which one counts is not known."""
        self._check_width()
        first_rows = pyarrow.csv.ReadOptions(use_threads=False, block_size=_BLOCK_BYTES)
        with self._read(first_rows) as reader:
            names = list(reader.schema.names)
        twice = [name for name, times in Counter(names).items() if times > 1]
        if twice:
            raise InvalidParameter(
                f"{self._name} has column {twice[0]} twice in its header: rename one, or leave it out"
            )
        return names

    def _check_width(self) -> None:
        """Raise `InvalidParameter` for far too many columns: Arrow takes kilobytes for each, and ends the
        process where it does not get them."""
        with self._file.native() as file:
            begin = file.read(_BLOCK_BYTES).decode(errors="replace")
        reader = csv.reader(io.StringIO(begin, newline=""), delimiter=self._csv.separator)
        try:
            width = len(next(reader, []))
        except csv.Error as error:  # a name of more characters than a field may have there
            raise InvalidParameter(
                f"{self._name} has no header that can be read ({error}): begin it with a line of the "
                f"columns' names, separated by {self._csv.separator!r} (sep)"
            ) from error
        if width > COLUMNS_MAX:
            raise InvalidParameter(
                f"{self._name} has {width} columns, at most {COLUMNS_MAX} are accepted: has its header the "
                f"separator {self._csv.separator!r} (sep)?"
            )

    def columns(self, rows: pa.RecordBatch, place: Place) -> pa.RecordBatch:
        columns: dict[str, pa.Array] = {}
        structs = {struct.name for struct in self._schema.structs}
        for name in rows.schema.names:
            if name in structs:
                columns |= self._struct_columns(name, rows.column(name), place)
            else:
                columns[name] = self._column(self._schema.by_name.get(name), rows.column(name), place)
        return pa.RecordBatch.from_pydict(columns)

    def _struct_columns(self, struct: str, texts: pa.Array, place: Place) -> dict[str, pa.Array]:
        """Return the columns of a struct array's fields."""
        own = own_names(self._schema, struct)
        lists = pc.fill_null(texts.cast(pa.binary()), JSON_NULL).to_pylist()
        rows = [members_of(msgspec.Raw(text), struct, own, place, at) for at, text in enumerate(lists)]
        return {
            name: column_of(self._schema.by_name[name], [row[name] for row in rows], place.refuse)
            for name in own
        }

    def _column(self, field: FieldSchema | None, texts: pa.Array, place: Place) -> pa.Array:
        if field is None or field.name == DYNAMIC_FIELD or field.kind.family is Family.JSON:
            return texts
        if field.kind.family in (Family.GEOMETRY, Family.TIME):
            return texts
        if field.kind.family is Family.TEXT:
            may_lack = field.nullable or field.default_value is not None
            return texts if may_lack else pc.fill_null(texts, self._csv.null)
        if field.kind.family is Family.BOOL:
            texts = pc.utf8_lower(texts)
        return column_of(field, pc.fill_null(texts.cast(pa.binary()), JSON_NULL).to_pylist(), place.refuse)


@contextlib.contextmanager
def _with_remedy(name: str) -> Iterator[None]:
    """Say about file ``name`` that a row is too long: Arrow reads blocks, and a row may be in two of them."""
    try:
        yield
    except pa.ArrowInvalid as error:
        if _TOO_LONG not in str(error):
            raise
        raise InvalidParameter(
            f"{name} has a row of more than {_BLOCK_BYTES} bytes, or nothing closes a quote in it: close it, "
            "or write longer rows as JSON lines (.jsonl) or Parquet"
        ) from error


def _as_texts(names: list[str], null: str) -> pyarrow.csv.ConvertOptions:
    return pyarrow.csv.ConvertOptions(
        column_types=dict.fromkeys(names, pa.string()),
        null_values=[null],
        strings_can_be_null=True,
        quoted_strings_can_be_null=bool(null),
    )
