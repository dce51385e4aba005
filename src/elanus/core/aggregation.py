"""GROUP BY: count, sum, min, max and avg over the rows that a query matches, for each group of them.

Each query node aggregates its own rows to *partial* results, one row per group; the proxy combines those of
all nodes and finishes them. Row-sized work is Arrow's. A partial average is a total and a count. A *total* is
a sum in float64: unlike a sum of integers it cannot wrap. Rows that share a primary key count separately, as
they do in ``count(*)``.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import pyarrow as pa
import pyarrow.compute as pc

from elanus.core.errors import InvalidParameter
from elanus.core.ordering import AGGREGATE, OrderBy, order_places
from elanus.core.schema import CollectionSchema, FieldSchema
from elanus.core.types import Family

Columns = Mapping[str, pa.Array]

ALL_ROWS = "*"
_TOTAL = "total"
_PARTS = {
    "count": ("count",),
    "sum": ("sum", _TOTAL),
    "min": ("min",),
    "max": ("max",),
    "avg": (_TOTAL, "count"),
}
_COMBINED_BY = {"count": "sum", "sum": "sum", _TOTAL: "sum", "min": "min", "max": "max"}
_NUMBERS = (Family.INTEGER, Family.FLOATING)
_FAMILIES = {
    "sum": _NUMBERS,
    "avg": _NUMBERS,
    "min": (*_NUMBERS, Family.TEXT, Family.TIME),
    "max": (*_NUMBERS, Family.TEXT, Family.TIME),
}


@dataclass(frozen=True, slots=True)
class Aggregate:
    """``operator``: count, sum, avg, min or max. ``field``: its argument; `ALL_ROWS` for ``count(*)``.

    ``name``: as the client wrote it.
    """

    operator: str
    field: str
    name: str


@dataclass(frozen=True, slots=True)
class Aggregation:
    """``keys``: the fields to group by; empty: all rows are one group, even if there are none."""

    keys: tuple[str, ...]
    aggregates: tuple[Aggregate, ...]

    @property
    def fields(self) -> tuple[str, ...]:
        """The names of the fields that `partial` reads."""
        arguments = (a.field for a in self.aggregates if a.field != ALL_ROWS)
        return tuple(dict.fromkeys((*self.keys, *arguments)))

    @property
    def parts(self) -> tuple[tuple[str, str], ...]:
        """The operators and fields of the partial results."""
        return tuple(dict.fromkeys((part, a.field) for a in self.aggregates for part in _PARTS[a.operator]))


def parse_aggregate(text: str, schema: CollectionSchema) -> Aggregate | None:
    """Return the aggregate that an output field names, None if it names none.

    Raises `InvalidParameter` for a field that is missing, and for one that the operator cannot take.
    """
    matched = AGGREGATE.fullmatch(text.strip())
    if matched is None:
        return None
    operator, field = matched[1].lower(), matched[2]
    if operator == "count" and field in ("", ALL_ROWS):
        return Aggregate(operator, ALL_ROWS, text.strip())
    if field in ("", ALL_ROWS):
        raise InvalidParameter(f"{operator}({field}) is not supported, only count(*) is allowed")
    if field not in schema.by_name:
        raise InvalidParameter(f"target field {field} for aggregation:{operator} does not exist")
    kind = schema.by_name[field].kind
    families = _FAMILIES.get(operator)
    if families is not None and (kind.family not in families or kind.is_long_text):
        raise InvalidParameter(
            f"aggregation operator {operator} does not support data type {kind.name}: field {field}"
        )
    return Aggregate(operator, field, text.strip())


def field_of_column(name: str, schema: CollectionSchema) -> FieldSchema | None:
    """Return the field whose values a column of an answer has: that of its name, or the least or greatest
    moment of one. None: the values are numbers and texts as they are."""
    field = schema.by_name.get(name)
    matched = AGGREGATE.fullmatch(name) if field is None else None
    if matched is None or matched[1].lower() not in ("min", "max"):
        return field
    of = schema.by_name.get(matched[2])
    return of if of is not None and of.kind.family is Family.TIME else None


def check_group_fields(schema: CollectionSchema, names: Sequence[str]) -> None:
    """Raises `InvalidParameter` for a field that is missing, and for a type that cannot be grouped by."""
    for name in names:
        if name not in schema.by_name:
            raise InvalidParameter(f"field {name} not exist")
        field = schema.by_name[name]
        groups = field.kind.family in (Family.INTEGER, Family.TEXT, Family.TIME)
        if not groups or field.kind.is_long_text:
            raise InvalidParameter(f"group by field {name} has unsupported data type {field.kind.name}")


def partial(columns: Columns, rows: int, aggregation: Aggregation) -> dict[str, pa.Array]:
    """Aggregate rows. ``columns`` hold at least the aggregation's fields, each of ``rows`` rows.

    The result has the keys, and one column for each of the aggregation's parts.
    """
    wanted = {name: columns[name] for name in aggregation.fields}
    functions: list[object] = []
    for operator, field in aggregation.parts:
        if operator == _TOTAL:
            name = _part_name(_TOTAL, field)
            wanted[name] = pc.cast(columns[field], pa.float64(), safe=False)
            functions.append((name, "sum"))
        else:
            functions.append(([], "count_all") if field == ALL_ROWS else (field, operator))
    table = pa.table(wanted) if wanted else pa.table({_ROWS: pa.nulls(rows)})
    return _aggregated(table, aggregation, functions)


def combined(parts: Sequence[Columns], aggregation: Aggregation) -> dict[str, pa.Array]:
    """Combine the partial results of at least one node to one, groups in the order of their keys."""
    table = pa.concat_tables([pa.table(dict(part)) for part in parts])
    functions = [(_part_name(*part), _COMBINED_BY[part[0]]) for part in aggregation.parts]
    columns = _aggregated(table, aggregation, functions)
    if not aggregation.keys:
        return columns
    order = pa.array(order_places(columns, [OrderBy(key) for key in aggregation.keys]))
    return {name: column.take(order) for name, column in columns.items()}


def finished(columns: Columns, aggregation: Aggregation) -> dict[str, pa.Array]:
    """Return the keys and the aggregates, by the client's names, from combined partial results.

    Raises `InvalidParameter` for a sum of integers that does not fit 64 bits.
    """
    result = {key: columns[key] for key in aggregation.keys}
    for aggregate in aggregation.aggregates:
        operator, field = aggregate.operator, aggregate.field
        if operator == "avg":
            counts = columns[_part_name("count", field)].cast(pa.float64())
            totals = columns[_part_name(_TOTAL, field)]
            result[aggregate.name] = pc.if_else(pc.equal(counts, 0.0), None, pc.divide(totals, counts))
        else:
            column = columns[_part_name(operator, field)]
            if operator == "sum" and _has_wrapped(column, columns[_part_name(_TOTAL, field)]):
                raise InvalidParameter(
                    f"{aggregate.name}: the sum of field {field} does not fit 64 bits: use avg({field})"
                )
            result[aggregate.name] = column
    return result


_ROWS = "elanus_rows"
"""A column in place of fields, where only rows are counted."""


def _has_wrapped(sums: pa.Array, totals: pa.Array) -> bool:
    """Whether a sum of integers is that of another number: one a multiple of 2**64 away from it."""
    if not pa.types.is_integer(sums.type):
        return False
    distances = pc.abs(pc.subtract(pc.cast(sums, pa.float64(), safe=False), totals))
    return bool(pc.any(pc.greater(distances, 2.0**63)).as_py())


def _part_name(operator: str, field: str) -> str:
    return f"{operator}({field})"


def _aggregated(
    table: pa.Table, aggregation: Aggregation, functions: Sequence[object]
) -> dict[str, pa.Array]:
    grouped = pa.TableGroupBy(table, list(aggregation.keys), use_threads=False).aggregate(list(functions))
    names = [*aggregation.keys, *(_part_name(*part) for part in aggregation.parts)]
    columns = [grouped.column(n).combine_chunks() for n in range(grouped.num_columns)]
    return dict(zip(names, columns, strict=True))
