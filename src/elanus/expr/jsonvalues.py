"""The values at one path of a JSON column's rows, as columns: one per JSON type.

JSON is typed row by row, Arrow column by column. So the values of n rows become up to five columns of n
entries, each null where the row's value has another type, and every question about JSON turns into ordinary
kernels on those columns. A type that no row has costs nothing.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Sequence
from contextlib import suppress
from dataclasses import dataclass
from functools import cached_property
from sys import getsizeof
from typing import Any

import msgspec
import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from elanus.core.json_keys import double_of
from elanus.expr.floats import lookup_set
from elanus.expr.long_list import array_from, types_in

Path = tuple[str | int, ...]
"""Object keys and array indexes, outermost first."""

UNKNOWN = pa.scalar(None, pa.bool_())
INT64_MIN, INT64_MAX = -(2**63), 2**63 - 1


@dataclass(frozen=True, eq=False)
class JsonValues:
    """``rows`` values. Each column is None when no row has its type, else of shape (rows,).

    ``present`` (bool, no nulls): the path leads to a value other than JSON's null.
    ``lists``: the arrays as Python lists, None in other rows. Objects appear only in ``present``.
    """

    rows: int
    present: pa.Array
    integers: pa.Array | None
    floats: pa.Array | None
    strings: pa.Array | None
    booleans: pa.Array | None
    lists: Sequence[list[Any] | None] | None

    @classmethod
    def of(cls, values: Sequence[Any]) -> JsonValues:
        """Build columns from decoded values, `msgspec.UNSET` if missing. Integers beyond 64 bits become
        floats."""
        types = set(map(type, values))
        if int in types and any(type(v) is int and not INT64_MIN <= v <= INT64_MAX for v in values):
            values = [_within_64_bits(value) for value in values]
            types = set(map(type, values))
        return cls(
            rows=len(values),
            present=pa.array([v is not None and v is not msgspec.UNSET for v in values], pa.bool_()),
            integers=_of_type(values, int, pa.int64()) if int in types else None,
            floats=_of_type(values, float, pa.float64()) if float in types else None,
            strings=_of_type(values, str, pa.string()) if str in types else None,
            booleans=_of_type(values, bool, pa.bool_()) if bool in types else None,
            lists=[v if type(v) is list else None for v in values] if list in types else None,
        )

    @property
    def memory_bytes(self) -> int:
        """Bytes of the columns. A Python list counts with its references, not with what they refer to."""
        columns = (self.present, self.integers, self.floats, self.strings, self.booleans)
        size_bytes = sum(column.nbytes for column in columns if column is not None)
        return int(size_bytes) + sum(map(getsizeof, filter(None, self.lists or ())))

    def take(self, indices: pa.Array) -> JsonValues:
        """The values at these row numbers; a null row number gives a missing value."""
        picked = None
        if self.lists is not None:
            picked = [None if i is None else self.lists[i] for i in indices.to_pylist()]
        return JsonValues(
            rows=len(indices),
            present=pc.fill_null(self.present.take(indices), False),
            integers=None if self.integers is None else self.integers.take(indices),
            floats=None if self.floats is None else self.floats.take(indices),
            strings=None if self.strings is None else self.strings.take(indices),
            booleans=None if self.booleans is None else self.booleans.take(indices),
            lists=picked,
        )

    @cached_property
    def elements(self) -> tuple[JsonValues, npt.NDArray[np.int64]]:
        """The elements of all arrays, in order, and the row number of each. shapes (m,), (m,)"""
        lists = self.lists or ()
        counts = np.fromiter((len(v) if v else 0 for v in lists), np.int64, len(lists))
        flat = [element for value in lists if value for element in value]
        return JsonValues.of(flat), np.repeat(np.arange(len(lists)), counts)

    @property
    def lengths(self) -> pa.Array:
        """The number of elements of each array, int64; null where the value is no array. shape (rows,)"""
        lists = self.lists or [None] * self.rows
        return pa.array([None if value is None else len(value) for value in lists], pa.int64())

    def is_member(self, members: JsonSet) -> pa.Array:
        """Which values are in the set; null where no member has the value's type. shape (rows,)

        No value is in the empty set, whatever its type.
        """
        if not members.items:
            return pc.if_else(self.present, False, UNKNOWN)
        found = [
            _is_in(self.integers, members.integers if members.has_numbers else None),
            _is_in(self.floats, members.floats if members.has_numbers else None),
            _is_in(self.strings, members.strings),
            _is_in(self.booleans, members.booleans),
        ]
        if self.lists is not None and members.lists is not None:
            hits = [None if v is None else json_key(v) in members.lists for v in self.lists]
            found.append(pa.array(hits, pa.bool_()))
        known = [column for column in found if column is not None]
        return pc.coalesce(*known) if known else pa.nulls(self.rows, pa.bool_())

    def contains(self, members: JsonSet, need_all: bool, go_on: Callable[[str], None]) -> pa.Array:
        """Which arrays hold any (or each) of the members; null where the value is no array. shape (rows,)

        ``go_on``: see `elanus.expr.batch.Batch`.
        """
        if self.lists is None:
            return pa.nulls(self.rows, pa.bool_())
        is_list = pa.array([v is not None for v in self.lists], pa.bool_())
        wanted = [members] if not need_all else [JsonSet.of([item]) for item in members.items]
        holds = np.ones(self.rows, bool)
        for one in wanted:
            go_on("not all members of the list were looked for")
            holds &= self._holds_any(one)
        return pc.if_else(is_list, pa.array(holds), UNKNOWN)

    def _holds_any(self, members: JsonSet) -> npt.NDArray[np.bool_]:
        elements, rows = self.elements
        hits = pc.fill_null(elements.is_member(members), False).to_numpy(zero_copy_only=False)
        holds = np.zeros(self.rows, bool)
        holds[rows[hits]] = True
        return holds


@dataclass(frozen=True, eq=False)
class JsonSet:
    """A list of literals to look up JSON values in, by type. Numbers are equal by value: 1 equals 1.0.

    ``items`` are the literals as written. ``integers`` and ``floats`` each hold all the numbers.
    """

    items: Sequence[Any]
    has_numbers: bool
    integers: pa.Array
    floats: pa.Array
    strings: pa.Array | None
    booleans: pa.Array | None
    lists: frozenset[Any] | None

    @classmethod
    def of(cls, items: Sequence[Any]) -> JsonSet:
        if types_in(items) == {int}:
            with suppress(OverflowError):
                return cls._of_integers(items, array_from(items, pa.int64()).unique())
        numbers = [_within_64_bits(v) for v in items if type(v) in (int, float)]
        whole = {int(v) for v in numbers if math.isfinite(v) and v == int(v) and INT64_MIN <= v <= INT64_MAX}
        strings = {v for v in items if type(v) is str}
        booleans = {v for v in items if type(v) is bool}
        lists = frozenset(json_key(v) for v in items if type(v) is list)
        return cls(
            items=items,
            has_numbers=bool(numbers),
            integers=pa.array(whole, pa.int64()),
            floats=lookup_set(pa.array({float(v) for v in numbers if float(v) == v}, pa.float64())),
            strings=pa.array(strings, pa.string()) if strings else None,
            booleans=pa.array(booleans, pa.bool_()) if booleans else None,
            lists=lists or None,
        )

    @classmethod
    def _of_integers(cls, items: Sequence[Any], integers: pa.Array) -> JsonSet:
        """The same for integers of 64 bits, of which there may be millions: without a look at each."""
        whole = integers.to_numpy()
        rounded = whole.astype(np.float64)
        fits = rounded < 2.0**63
        exact = fits & (np.where(fits, rounded, 0).astype(np.int64) == whole)
        floats = lookup_set(pa.array(rounded[exact]))
        return cls(items, True, integers, floats, strings=None, booleans=None, lists=None)


def json_key(value: Any) -> Any:
    """A hashable key that is equal for equal JSON values: true differs from 1, and 1.0 does not."""
    if isinstance(value, bool):
        return (bool, value)
    if isinstance(value, list):
        return (list, tuple(map(json_key, value)))
    if isinstance(value, dict):
        return (dict, frozenset((key, json_key(inner)) for key, inner in value.items()))
    return value


def _is_in(column: pa.Array | None, members: pa.Array | None) -> pa.Array | None:
    if column is None or members is None:
        return None
    return pc.if_else(pc.is_valid(column), pc.is_in(column, value_set=members), UNKNOWN)


def _of_type(values: Iterable[Any], wanted: type, arrow_type: pa.DataType) -> pa.Array:
    return pa.array([value if type(value) is wanted else None for value in values], arrow_type)


def _within_64_bits(value: Any) -> Any:
    if type(value) is not int or INT64_MIN <= value <= INT64_MAX:
        return value
    return double_of(value)
