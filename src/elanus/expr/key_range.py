"""Splits a filter into bounds of the primary key and the rest.

The pages of a query iterator have the client's filter and a bound that moves: ``(price < 9) and id > 1000``.
Where the rows of a segment are known by key, the bound says where to begin, and only the rest has to be
evaluated. The rest is the same for all pages, so its results can be kept.
"""

from __future__ import annotations

import hashlib
from collections.abc import Hashable
from dataclasses import dataclass, fields, is_dataclass
from operator import attrgetter

import pyarrow as pa

from elanus.core.schema import DataType, FieldSchema
from elanus.expr.long_list import LongLiterals
from elanus.expr.tree import Always, And, Column, Comparator, Compare, Constant, Predicate

Key = int | str
_INT64 = range(-(2**63), 2**63)
_PARTS_OF_FIELD = attrgetter(*(part.name for part in fields(FieldSchema) if part.name != "params"))


@dataclass(frozen=True, slots=True)
class KeyBound:
    """One condition, ``key comparator value``; never with ``!=``. ``value`` has the key's type."""

    comparator: Comparator
    value: Key


def split(predicate: Predicate) -> tuple[tuple[KeyBound, ...], Predicate]:
    """Return bounds of the primary key and a predicate, which together hold where ``predicate`` does."""
    conditions = predicate.children if isinstance(predicate, And) else (predicate,)
    bounds: list[KeyBound] = []
    rest: list[Predicate] = []
    for condition in conditions:
        bound = _bound(condition)
        if bound is None:
            rest.append(condition)
        else:
            bounds.append(bound)
    if not bounds:
        return (), predicate
    if len(rest) > 1:
        return tuple(bounds), And(tuple(rest))
    return tuple(bounds), rest[0] if rest else Always(True)


def _bound(condition: Predicate) -> KeyBound | None:
    if not isinstance(condition, Compare) or condition.comparator is Comparator.NE:
        return None
    column, constant = condition.left, condition.right
    if not isinstance(column, Column) or not column.field.is_primary or not isinstance(constant, Constant):
        return None
    value = constant.value
    if isinstance(value, str):
        return KeyBound(condition.comparator, value)
    if column.data_type is DataType.INT64 and type(value) is int and value in _INT64:
        return KeyBound(condition.comparator, value)
    return None


def shape(value: object) -> Hashable:
    """Return what two predicates have in common exactly if they are equal."""
    if isinstance(value, FieldSchema):
        # All of it: fields of two collections have the same ids, and may have other analyzers.
        return *_PARTS_OF_FIELD(value), frozenset(value.params.items())
    if isinstance(value, pa.Array):
        # Of millions of values a digest, which leaves other threads the interpreter.
        content = pa.record_batch([value], ["values"]).serialize()
        return str(value.type), hashlib.blake2b(content, digest_size=32).digest()
    if isinstance(value, LongLiterals):
        return tuple(map(shape, value.pieces))
    if isinstance(value, tuple | list):
        return tuple(map(shape, value))
    if is_dataclass(value):
        return type(value), *(shape(getattr(value, part.name)) for part in fields(value))
    if isinstance(value, float):
        return float, repr(value)  # 0.0 and -0.0 differ
    assert isinstance(value, Hashable), f"a filter contains a {type(value).__name__}"
    return type(value), value
