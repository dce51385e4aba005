"""Which values of a partition key a filter allows, so that a read looks at their partitions alone."""

from __future__ import annotations

import pyarrow as pa
import pyarrow.compute as pc

from elanus.core.errors import InvalidFilter
from elanus.core.schema import FieldSchema
from elanus.expr.tree import (
    Always,
    And,
    Column,
    Comparator,
    Compare,
    Constant,
    Member,
    Or,
    Predicate,
    columns_of,
)

_NAMES = {
    Comparator.NE: "NotEqual",
    Comparator.LT: "LessThan",
    Comparator.LE: "LessEqual",
    Comparator.GT: "GreaterThan",
    Comparator.GE: "GreaterEqual",
}


def equal_value(value: bool | float | str, field: FieldSchema) -> pa.Array:
    """Return the one value of a key field that equals a literal of its type."""
    return pa.array([value], field.arrow_type)


def values_of(node: Predicate, field: str) -> pa.Array | None:
    """Return values of a key field that every matching row has one of; None: it may have others."""
    match node:
        case And():
            found = [values_of(child, field) for child in node.children]
            known = [values for values in found if values is not None]
            if not known:
                return None
            common = known[0]
            for values in known[1:]:
                common = common.filter(pc.is_in(common, value_set=values))
            return common
        case Or():
            found = [values_of(child, field) for child in node.children]
            if any(values is None for values in found):
                return None
            return pa.concat_arrays(found).unique()
        case Member() if _is(node.column, field) and not node.negated:
            return node.values
        case Compare(Comparator.EQ, Column() as column, Constant() as constant) if _is(column, field):
            return equal_value(constant.value, column.field)
        case _:
            return None


def check_isolated(node: Predicate, field: str) -> None:
    """Check that a filter names one value of the key, as partition key isolation demands.

    Raises `InvalidFilter`, with the reference's texts.
    """
    if not _isolates(node, field):
        raise InvalidFilter(
            "partition key not found in expr or the expr is invalid when validating partition key isolation: "
            f"add {field} == ... to the filter"
        )


def _isolates(node: Predicate, field: str) -> bool:
    match node:
        case And():
            found = [_isolates(child, field) for child in node.children]  # all: each may be refused
            return any(found)
        case Or():
            found = [_isolates(child, field) for child in node.children]
            if any(found):
                raise _refusal("OR", field)
            return False
        case Always():
            return False
        case Compare():
            if not any(_is(column, field) for column in (*columns_of(node.left), *columns_of(node.right))):
                return False
            if node.comparator is not Comparator.EQ:
                raise _refusal(_NAMES[node.comparator], field)
            return isinstance(node.left, Column) and isinstance(node.right, Constant)
        case Member() if _is(node.column, field):
            raise _refusal("IN", field)
        case _:
            return False


def _refusal(what: str, field: str) -> InvalidFilter:
    return InvalidFilter(f"partition key isolation does not support {what}: compare {field} with == alone")


def _is(column: Column, field: str) -> bool:
    return column.field.name == field and not column.path
