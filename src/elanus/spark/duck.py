"""A collection as a view in DuckDB: DuckDB reads the segments' files itself, and applies the deletes.

The plan is that of `elanus.spark.scan`; the view is one SELECT, so DuckDB reads the columns and row groups
that a query needs. Columns of files are found by their field ids, not by their names.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING

import pyarrow as pa

from elanus.core.errors import NotSupported
from elanus.core.rows import absent_column
from elanus.core.schema import TIMESTAMP_FIELD, DataType, FieldSchema
from elanus.core.timestamps import NO_TIMESTAMP
from elanus.spark.scan import FileFacts, FileGroup, ScanPlan, facts_table, location
from elanus.storage.binlog import TIMESTAMP_FIELD_ID
from elanus.storage.delta_log import PARTITION_COLUMN, PRIMARY_KEY_COLUMN

if TYPE_CHECKING:
    from duckdb import DuckDBPyConnection

_SIMPLE: tuple[tuple[pa.DataType, str], ...] = (
    (pa.bool_(), "BOOLEAN"),
    (pa.int8(), "TINYINT"),
    (pa.int16(), "SMALLINT"),
    (pa.int32(), "INTEGER"),
    (pa.int64(), "BIGINT"),
    (pa.float32(), "FLOAT"),
    (pa.float64(), "DOUBLE"),
    (pa.string(), "VARCHAR"),
)


def attach_view(connection: DuckDBPyConnection, name: str, plan: ScanPlan, url: str) -> None:
    """Create or replace the temporary view ``name``, and the tables that it needs. ``url``: of the store.

    Float vectors are arrays of fixed size (``FLOAT[768]``), Timestamptz is a ``TIMESTAMP`` in UTC, other
    vectors and geometries are blobs. Raises `NotSupported` when two columns differ in case only.
    """
    _check_names(plan)
    facts, deletes = f"__elanus_{name}_files", f"__elanus_{name}_deletes"
    files = [file for group in plan.groups if not group.whole for file in group.files]
    places = {file.path: location(url, file.path) for file in (*files, *plan.deletes)}
    _table(connection, facts, facts_table(files, places))
    _table(connection, deletes, _no_deletes(plan))
    if plan.deletes:
        logs = facts_table(plan.deletes, places)
        _fill_deletes(connection, deletes, logs, [places[f.path] for f in plan.deletes])
    selects = [_select(plan, group, facts, deletes, url) for group in plan.groups] or [_nothing(plan)]
    connection.execute(f"CREATE OR REPLACE TEMP VIEW {quoted(name)} AS {' UNION ALL '.join(selects)}")


def stored_type(arrow: pa.DataType) -> str:
    """Return the type in which DuckDB reads a column of a Parquet file that has this Arrow type."""
    for known, found in _SIMPLE:
        if arrow == known:
            return found
    if pa.types.is_list(arrow) or pa.types.is_fixed_size_list(arrow):
        return f"{stored_type(arrow.value_type)}[]"
    return "BLOB"


def quoted(name: str) -> str:
    return '"' + name.replace('"', '""') + '"'


def _select(plan: ScanPlan, group: FileGroup, facts: str, deletes: str, url: str) -> str:
    key = plan.schema.primary_field
    read = {f.name: f for f in (*plan.fields, key, *([plan.expiry] if plan.expiry else []))}
    stored = [f for f in read.values() if f.name not in group.absent]
    source = f"{_parquet(group.files, stored, url)} AS r"
    where = []
    if not group.whole:
        stamp = f"CASE WHEN f.__fixed <> {NO_TIMESTAMP} THEN f.__fixed ELSE r.__stored_ts END"
        source += f" JOIN {quoted(facts)} AS f ON r.__file = f.__file"
        where += [f"{stamp} <= f.__shown_until", f"{stamp} > {plan.expired_until}"]
        if group.deletable:
            # Plain joins: DuckDB turns NOT EXISTS with inequalities into a plan that reads all columns.
            same = f"__deleted = r.{quoted(key.name)}"
            source += (
                f" LEFT JOIN (FROM {quoted(deletes)} WHERE __partition = 0) AS d ON d.{same}"
                f" LEFT JOIN (FROM {quoted(deletes)} WHERE __partition <> 0) AS p ON p.{same}"
                " AND p.__partition = f.__partition"
            )
            where.append(
                f"greatest(coalesce(d.__ts, 0), coalesce(p.__ts, 0)) <= greatest({stamp}, f.__deletes_from)"
            )
    if plan.expiry is not None and plan.expiry.name not in group.absent:
        moment = f"r.{quoted(plan.expiry.name)}"
        where.append(f"({moment} IS NULL OR {moment} <= 0 OR {moment} > {plan.now_us})")
    columns = ", ".join(f"{_shown(f, group.absent)} AS {quoted(f.name)}" for f in plan.fields)
    return f"SELECT {columns} FROM {source}" + (f" WHERE {' AND '.join(where)}" if where else "")


def _parquet(files: Iterable[FileFacts], fields: Iterable[FieldSchema], url: str) -> str:
    columns = {int(TIMESTAMP_FIELD_ID): ("__stored_ts", "BIGINT")}
    columns |= {int(f.field_id): (f.name, stored_type(f.arrow_type)) for f in fields}
    schema = ", ".join(
        f"{number}: {{name: {_text(name)}, type: {_text(kind)}, default_value: NULL}}"
        for number, (name, kind) in columns.items()
    )
    paths = ", ".join(_text(location(url, file.path)) for file in files)
    return f"read_parquet([{paths}], filename = '__file', schema = MAP {{{schema}}})"


def _shown(field: FieldSchema, absent: frozenset[str]) -> str:
    column = f"r.{quoted(field.name)}"
    if field.name in absent:
        # In parentheses: the cast of a negative number comes before its sign, so -128::TINYINT overflows.
        column = f"({_literal(absent_column(field, 1)[0].as_py())})::{stored_type(field.arrow_type)}"
    if field.data_type is DataType.TIMESTAMPTZ:
        return f"make_timestamp({column})"
    if field.data_type is DataType.FLOAT_VECTOR:
        return f"{column}::FLOAT[{field.dim}]"
    return column


def _literal(value: object) -> str:
    if value is None:
        return "NULL"
    if isinstance(value, bytes):
        return f"from_hex('{value.hex()}')"
    if isinstance(value, list):
        return f"[{', '.join(map(_literal, value))}]"
    return _text(value) if isinstance(value, str) else str(value)


def _text(text: str) -> str:
    return "'" + text.replace("'", "''") + "'"


def _nothing(plan: ScanPlan) -> str:
    """Return a SELECT of no rows."""
    nulls = ", ".join(f"NULL::{stored_type(f.arrow_type)} AS {quoted(f.name)}" for f in plan.fields)
    columns = ", ".join(f"{_shown(f, frozenset())} AS {quoted(f.name)}" for f in plan.fields)
    return f"SELECT {columns} FROM (SELECT {nulls}) AS r WHERE false"


def _no_deletes(plan: ScanPlan) -> pa.Table:
    key = plan.schema.primary_field.arrow_type
    columns = {"__deleted": key, "__ts": pa.int64(), "__partition": pa.int64()}
    return pa.schema(list(columns.items())).empty_table()


def _fill_deletes(connection: DuckDBPyConnection, name: str, logs: pa.Table, paths: list[str]) -> None:
    """Of each key and partition the latest delete."""
    files = ", ".join(map(_text, paths))
    stamp = f"CASE WHEN f.__fixed <> {NO_TIMESTAMP} THEN f.__fixed ELSE r.{TIMESTAMP_FIELD} END"
    connection.register("__elanus_logs", logs)
    connection.execute(
        f"INSERT INTO {quoted(name)} SELECT r.{PRIMARY_KEY_COLUMN}, max({stamp}), r.{PARTITION_COLUMN} "
        f"FROM read_parquet([{files}], filename = '__file') AS r JOIN __elanus_logs AS f "
        f"ON r.__file = f.__file WHERE {stamp} <= f.__shown_until GROUP BY ALL"
    )
    connection.unregister("__elanus_logs")


def _table(connection: DuckDBPyConnection, name: str, rows: pa.Table) -> None:
    connection.register("__elanus_new", rows)
    connection.execute(f"CREATE OR REPLACE TEMP TABLE {quoted(name)} AS SELECT * FROM __elanus_new")
    connection.unregister("__elanus_new")


def _check_names(plan: ScanPlan) -> None:
    lower = [f.name.lower() for f in plan.fields]
    for field in plan.fields:
        if lower.count(field.name.lower()) > 1:
            raise NotSupported(
                f"two columns are named {field.name} when case is ignored, as DuckDB does: name those that "
                "are wanted in columns"
            )
