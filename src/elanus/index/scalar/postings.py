"""Keys with the numbers of their rows: STL_SORT, INVERTED and Trie, and BITMAP with many distinct values.

::

    keys     3      7      9          the distinct values, ascending
    starts   0      2      3      6   where the rows of each key begin
    rows     4  8   1      0  2  5    the row numbers

Where most numbers occur once, the sorted values themselves are the keys and there are no starts: 12 bytes per
row of Int64. Rows without a value are not in it. Each distinct element of an array is a key of its row.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from elanus.core.lookup import Found, Holds, HoldsSuch, Lookup, OneOf, PackedRows, RowNumbers
from elanus.index.base import ScalarIndex
from elanus.index.files import IndexFileContent, write_index_file
from elanus.index.scalar.keys import Keys, NumberKeys, Spans, TextKeys, keys_of_file
from elanus.index.spec import IndexSpec

RowNumberArray = npt.NDArray[np.uint32]
_TRIED_ALWAYS = 64
END_SHARE_MAX = 1 / 8
"""Up to this share of the rows, found or left out, turning numbers into bits is quicker than a scan."""
_REPETITIVE = 2
"""Numbers that occur at least so often on average are stored once each, with the rows of each."""


@dataclass(frozen=True, slots=True)
class Grouped:
    """The rows of each key. ``starts``: int64 (keys + 1,); None: one row per key. ``rows``: uint32.

    ``of_elements``: the keys are elements of arrays, so a row may belong to several keys.
    """

    keys: Keys
    starts: npt.NDArray[np.int64] | None
    rows: RowNumberArray
    of_elements: bool

    def with_starts(self) -> npt.NDArray[np.int64]:
        return np.arange(len(self.keys) + 1, dtype=np.int64) if self.starts is None else self.starts

    def places(self, spans: Spans) -> Spans:
        """Turn spans of keys into ranges of places in ``rows``."""
        return spans if self.starts is None else self.starts[spans]

    def rows_of(self, spans: Spans) -> RowNumberArray:
        """Return the rows of these keys, in the order of the keys."""
        rows: Any = self.rows
        places = self.places(spans)
        if len(places) == 1:
            first, last = places[0].tolist()
            return np.asarray(rows[first:last])
        lengths = places[:, 1] - places[:, 0]
        before = np.cumsum(lengths) - lengths
        chosen = np.arange(int(lengths.sum())) + np.repeat(places[:, 0] - before, lengths)
        return np.asarray(rows[chosen])

    @property
    def arrays(self) -> dict[str, npt.NDArray[Any]]:
        """The arrays to store in an index file; `from_arrays` reads them back."""
        starts = {} if self.starts is None else {"starts": self.starts}
        flag = {"of_elements": np.array([self.of_elements])}
        return {**self.keys.arrays, **starts, "rows": self.rows, **flag}

    @classmethod
    def from_arrays(cls, arrays: Any) -> Grouped:
        return cls(keys_of_file(arrays), arrays.get("starts"), arrays["rows"], bool(arrays["of_elements"][0]))


def grouped(column: pa.Array, *, once_each: bool = False) -> Grouped:
    """Group a column's rows by value: numbers, booleans, strings, or lists of these.

    ``once_each``: store each distinct number once, however rarely it repeats.
    """
    of_elements = pa.types.is_list(column.type)
    if of_elements:
        counts = pc.fill_null(pc.list_value_length(column), 0).to_numpy()
        numbers = np.repeat(np.arange(len(column), dtype=np.uint32), counts)
        column = column.flatten()
    else:
        numbers = np.arange(len(column), dtype=np.uint32)
    if column.null_count:
        numbers = numbers[column.is_valid().to_numpy(zero_copy_only=False)]
        column = column.drop_null()
    if pa.types.is_string(column.type):
        keys, codes = _text_codes(column)
    else:
        values = column.to_numpy(zero_copy_only=False)
        if values.dtype.kind == "f":
            known = ~np.isnan(values)
            values, numbers = values[known], numbers[known]
        distinct, codes = np.unique(values, return_inverse=True)
        if not (once_each or of_elements or len(distinct) * _REPETITIVE <= len(values)):
            order = np.argsort(codes, kind="stable")
            return Grouped(NumberKeys(values[order]), None, numbers[order], of_elements)
        keys = NumberKeys(distinct)
    return _by_code(keys, codes.astype(np.int64), numbers, of_elements)


def _text_codes(column: pa.Array) -> tuple[Keys, npt.NDArray[Any]]:
    encoded = column.dictionary_encode()
    order = pc.sort_indices(encoded.dictionary).to_numpy()
    ranks = np.empty(len(order), np.int64)
    ranks[order] = np.arange(len(order))
    return TextKeys.of(encoded.dictionary.take(pa.array(order))), ranks[encoded.indices.to_numpy()]


def _by_code(keys: Keys, codes: npt.NDArray[np.int64], numbers: RowNumberArray, of_elements: bool) -> Grouped:
    if of_elements:  # an element that an array has twice
        pairs = np.unique((codes << 32) | numbers)
        codes, numbers = pairs >> 32, (pairs & 0xFFFFFFFF).astype(np.uint32)
    else:
        order = np.argsort(codes, kind="stable")
        codes, numbers = codes[order], numbers[order]
    starts = np.searchsorted(codes, np.arange(len(keys) + 1)).astype(np.int64)
    return Grouped(keys, starts, numbers, of_elements)


def common(few: RowNumberArray, many: RowNumberArray) -> RowNumberArray:
    """Return the numbers that two ascending arrays share: each of the few is looked up in the many."""
    if not len(many):
        return many
    places = np.minimum(np.searchsorted(many, few), len(many) - 1)
    return np.asarray(few[many[places] == few])


class Postings(ScalarIndex):
    """Row numbers by key. Finds few rows quickly; see `rows_share_max`."""

    def __init__(self, spec: IndexSpec, rows: int, groups: Grouped) -> None:
        super().__init__(spec, rows)
        self._groups = groups
        self._last: tuple[Lookup | None, Spans | None] = (None, None)

    @property
    def memory_bytes(self) -> int:
        return sum(array.nbytes for array in self._groups.arrays.values())

    def save(self, path: Path) -> None:
        write_index_file(path, IndexFileContent(self.spec, self.rows, None, self._groups.arrays))

    @classmethod
    def from_file(cls, spec: IndexSpec, content: IndexFileContent) -> Postings:
        return cls(spec, content.rows, Grouped.from_arrays(content.arrays))

    def estimate(self, lookup: Lookup) -> int | None:
        spans = self._spans(lookup)
        if spans is None:
            return None
        places = self._groups.places(spans)
        lengths = places[:, 1] - places[:, 0]
        wanted = self._wanted(lookup)
        if wanted is not None and wanted.need_all:
            return int(lengths.min()) if len(spans) == len(wanted.values) else 0
        return int(lengths.sum())

    def finds_quickly(self, count: int) -> bool:
        most = END_SHARE_MAX * self.rows
        return not self._groups.of_elements and (
            count <= most or (self._has_all_rows and self.rows - count <= most)
        )

    def find(self, lookup: Lookup) -> Found | None:
        spans = self._spans(lookup)
        if spans is None:
            return None
        wanted = self._wanted(lookup)
        if wanted is not None and wanted.need_all:
            return RowNumbers(self._with_all(spans, len(wanted.values)))
        if not self._groups.of_elements:
            places = self._groups.places(spans)
            count = int((places[:, 1] - places[:, 0]).sum())
            if count > self.rows_share_max * self.rows:
                return PackedRows(self._bits(spans, count))
        rows = self._groups.rows_of(spans)
        return RowNumbers(np.unique(rows) if self._groups.of_elements and len(spans) else rows)

    @property
    def _has_all_rows(self) -> bool:
        """Whether each row has one key: no value is missing, and none is a list."""
        return len(self._groups.rows) == self.rows and not self._groups.of_elements

    def _bits(self, spans: Spans, count: int) -> npt.NDArray[np.uint8]:
        """Return the bits of the ``count`` rows of these keys, or of all rows but the others if these are
        fewer."""
        groups, inverted = self._groups, self._has_all_rows and 2 * count > self.rows
        if inverted:
            ends = np.array([[0, len(groups.keys)]], np.int64)
            spans = np.concatenate((ends[:, :1], spans.reshape(1, -1), ends[:, 1:]), axis=1).reshape(-1, 2)
        held = np.full(self.rows, inverted)
        held[groups.rows_of(spans).astype(np.int64)] = not inverted  # int64: numpy would convert one by one
        return np.packbits(held, bitorder="little")

    def _wanted(self, lookup: Lookup) -> Holds | None:
        """Return the elements that are looked up, if the keys are elements."""
        return lookup if isinstance(lookup, Holds) else None

    def _worth_trying(self, total: int) -> float:
        """Return how many of so many values, rows or texts are worth a closer look."""
        return max(_TRIED_ALWAYS, self.rows_share_max * total)

    def _spans(self, lookup: Lookup) -> Spans | None:
        """Return the spans of a lookup's keys. Those of an estimate are kept for the search that follows."""
        last, spans = self._last
        if last is not lookup:
            spans = self._found_spans(lookup)
            self._last = lookup, spans
        return spans

    def _found_spans(self, lookup: Lookup) -> Spans | None:
        if isinstance(lookup, Holds | HoldsSuch) is not self._groups.of_elements:
            return None
        if isinstance(lookup, OneOf | Holds) and len(lookup.values) > self._worth_trying(self.rows):
            return None  # looking up so many values costs more than a scan
        return self._groups.keys.spans(lookup)

    def _with_all(self, spans: Spans, wanted: int) -> RowNumberArray:
        """Return the rows that belong to every one of ``wanted`` keys, each span being one: the rarest
        first."""
        if len(spans) < wanted:
            return np.empty(0, np.uint32)
        places = self._groups.places(spans)
        first, *others = sorted(places.tolist(), key=lambda place: place[1] - place[0])
        rows = self._groups.rows[first[0] : first[1]]
        for start, end in others:
            rows = common(rows, self._groups.rows[start:end])
        return rows
