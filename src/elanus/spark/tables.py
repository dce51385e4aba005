"""Tables of Spark's session catalog: ``CREATE TABLE docs USING elanus OPTIONS (collection 'docs', …)``.

Spark passes the options of a table to a Python data source once, when the table is created. Queries and
inserts get the table's columns only, and what the statement gives by ``WITH (…)``. So the options are kept in
the metadata of the primary key's column, which the catalog stores and returns. A catalog is no place for
secrets: the token is given to `elanus.spark.source.register`.

An insert gets the columns of its query. Spark gives them the metadata of the table that it inserts into,
unless their names and types are those of the table already: then they have that of the table that they were
read from, or none. So a table has a column of a type of its own, which no other table and no frame has: a
text as ``varchar`` of a length by its options, far longer than any text. To Spark it is a string otherwise.
Rows of the same table keep that type, and so do those that a query reads for a new table: only an insert
that Spark fitted to its table lacks it. Any other has to name its collection (`check_certain`).

A table that is made of a query (AS SELECT, saveAsTable) has the columns of the query, and Spark passes a data
source nothing about it: to the writer it is any write. Where the query read a table from here, its columns
come with that table's metadata; but all of them may be null, by which `made_of_query` knows them.
"""

from __future__ import annotations

import zlib
from collections.abc import Collection, Mapping

from pyspark.sql.types import StringType, StructField, StructType

from elanus.core.errors import InvalidParameter, NotSupported

_KEY = "elanus"
_GENERATED = "elanus.generated"
_CERTAIN = "elanus.certain"
_REQUIRED = "elanus.required"
_RAW_TYPE = "__CHAR_VARCHAR_TYPE_STRING"
"""Of Spark (`CharVarcharUtils`): the type that a column of strings was declared with."""
_OWN = (_KEY, _GENERATED, _CERTAIN, _REQUIRED, _RAW_TYPE)
_LENGTH_MIN, _LENGTHS = 1 << 30, 1 << 30
_CATALOG = "provider"
"""Only a catalog passes this option; it passes those of the statement twice, once with this prefix."""
_PREFIX = "option."
_ONLY_READ = frozenset({"partitions", "columns", "filter", "as_of"})
_NOT_FOR_WRITES = frozenset({"lease_s", "store"})
_NOT_FOR_READS = frozenset({"operation", "import_directory", "wait_served_s"})


def creates_table(options: Mapping[str, str]) -> bool:
    """Whether the options come from CREATE TABLE."""
    return _CATALOG in options


def options_given(options: Mapping[str, str]) -> dict[str, str]:
    """Return the options without those that the catalog adds."""
    given = {name.lower(): value for name, value in options.items()}
    if not creates_table(given):
        return given
    return {name.removeprefix(_PREFIX): text for name, text in given.items() if name.startswith(_PREFIX)}


def with_table_options(
    columns: StructType,
    options: Mapping[str, str],
    generated: Collection[str] = (),
    optional: Collection[str] = (),
    key: str = "",
) -> StructType:
    """Return the columns of a new table, which remember its options. ``key``: the primary key's column.

    ``generated``: those whose values the server makes; ``optional``: those for which it takes a null, though
    it gives none. Both may be left out of an insert, which to Spark is a null. Raises `NotSupported` for
    options that a table cannot have.
    """
    if "token" in options:
        raise NotSupported(
            "a table does not keep the option token, since anyone can read a catalog: give it to the "
            "session, elanus.spark.register(spark, token=...)"
        )
    for name in ("write_id", "stream_id", "changes_from", "keep_as"):
        if name in options:
            raise NotSupported(f"a table cannot have the option {name}: give it to a frame, or by WITH (...)")
    if options.get("operation", "").lower() == "delete":
        raise NotSupported("a table cannot have the operation delete: write a frame of keys with it")
    own = next((n for n, c in enumerate(columns.fields) if isinstance(c.dataType, StringType)), None)
    at = next((n for n, c in enumerate(columns.fields) if c.name == key), 0)
    found = []
    for n, column in enumerate(columns.fields):
        remembered: dict[str, object] = {}
        if n == at:
            remembered |= {_KEY: dict(options)}
        if n == own:
            remembered |= {_RAW_TYPE: f"varchar({_length(options)})", _CERTAIN: True}
        if column.name in generated:
            remembered |= {_GENERATED: True}
        nullable = column.nullable or column.name in generated or column.name in optional
        if not nullable:
            remembered |= {_REQUIRED: True}
        found.append(StructField(column.name, column.dataType, nullable, remembered))
    return StructType(found)


def _length(options: Mapping[str, str]) -> int:
    """Return a number that tables with other options do not have."""
    return _LENGTH_MIN + zlib.crc32(repr(sorted(options.items())).encode()) % _LENGTHS


def check_certain(columns: StructType) -> None:
    """Raise `InvalidParameter` where the columns of an insert may remember another table than its own."""
    own = next((c.metadata for c in columns.fields if isinstance(c.dataType, StringType)), {})
    if _CERTAIN not in own or _RAW_TYPE in own:
        raise InvalidParameter(
            "Spark does not say which table these rows are for. Name their collection, by insert into ... "
            "with (collection = '...') or as an option of the write, and what else differs from the options "
            "of register: so it is with a table without a column of texts, one that an older release has "
            "created, and rows that were read from a table of this format, as for create table ... as select"
        )


def generated_columns(columns: StructType) -> tuple[str, ...]:
    """Return the columns of a table whose values the server makes."""
    return tuple(column.name for column in columns.fields if _GENERATED in column.metadata)


def table_options(columns: StructType) -> dict[str, str] | None:
    """Return the options that columns remember; None: they are not those of a table."""
    for column in columns.fields:
        if _KEY in column.metadata:
            return dict(column.metadata[_KEY])
    return None


def made_of_query(columns: StructType) -> bool:
    """Whether the columns that a table remembers are those of another table, from which a query took them."""
    return any(column.nullable and _REQUIRED in column.metadata for column in columns.fields)


def columns_of_frame(columns: StructType) -> StructType:
    """Return columns without what those of a table remember: Spark passes that on to frames made of it."""
    found = []
    for column in columns.fields:
        metadata = {name: value for name, value in column.metadata.items() if name not in _OWN}
        found.append(StructField(column.name, column.dataType, column.nullable, metadata))
    return StructType(found)


def for_reads(options: Mapping[str, str]) -> dict[str, str]:
    """Leave out the options that only writes have, where a table has both."""
    return {name: value for name, value in options.items() if name not in _NOT_FOR_READS}


def for_writes(options: Mapping[str, str]) -> dict[str, str]:
    """Leave out the options that only reads have. Raises `InvalidParameter` for a table of some rows."""
    for name in sorted(_ONLY_READ & options.keys()):
        raise InvalidParameter(
            f"the table has the option {name}, so it can only be read: insert into a table of the whole "
            "collection"
        )
    return {name: value for name, value in options.items() if name not in _NOT_FOR_WRITES}
