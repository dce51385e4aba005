"""A way to evaluate the filters of the fuzz test: with indexes on the fields that they read."""

from __future__ import annotations

import zlib
from collections import Counter
from collections.abc import Iterator, Mapping
from random import Random

import pyarrow as pa
from fuzz_rows import ARRAYS, FLOATING, INTEGERS, MEMBERS, SCHEMA, TEXTS
from indexed_columns import CASTS, built, params_of

from elanus.core.lookup import Found, Lookup
from elanus.core.types import DataType
from elanus.expr import BoundFilter
from elanus.index import ScalarIndex

_FRACTIONS = (DataType.FLOAT, DataType.DOUBLE)
KINDS: dict[str, tuple[str, ...]] = {
    **dict.fromkeys(INTEGERS, ("STL_SORT", "INVERTED", "BITMAP", "HYBRID", "AUTOINDEX")),
    **dict.fromkeys(FLOATING, ("STL_SORT", "INVERTED", "HYBRID", "AUTOINDEX")),
    **dict.fromkeys(TEXTS, ("STL_SORT", "INVERTED", "BITMAP", "Trie", "NGRAM", "HYBRID", "AUTOINDEX")),
    "flag": ("INVERTED", "BITMAP", "AUTOINDEX"),
    **{
        name: ("INVERTED", "AUTOINDEX") if elements in _FRACTIONS else ("INVERTED", "BITMAP", "AUTOINDEX")
        for name, elements in ARRAYS.items()
    },
    **{f"clips[{name}]": ("INVERTED", "AUTOINDEX") for name in MEMBERS},
    "id": ("STL_SORT", "INVERTED", "AUTOINDEX"),
}
PATHS = {
    "meta": ('meta["a"]', "meta['b'][\"a\"]", 'meta["l"][0]', "meta[1]", 'meta["0"]', "meta"),
    "$meta": ("a", '$meta["b"]', "l"),
}
"""Paths that the filters ask for, and some above them."""


class WithIndexes:
    """Evaluates filters with an index of a random kind on each field.

    ``used``: how often an index answered, by its kind. The kinds depend on the filter alone, so that a wrong
    answer is the same for fewer rows.
    """

    def __init__(self) -> None:
        self.used: Counter[str] = Counter()

    def __call__(self, bound: BoundFilter, columns: Mapping[str, pa.Array], rows: int) -> list[bool]:
        random = Random(zlib.crc32(bound.explain().encode()))
        indexes = {}
        for name in sorted(bound.field_names):
            for params in _chosen(name, random):
                key, index = built(name, columns[name], params, schema=SCHEMA)
                indexes[key] = _Counted(index, params["index_type"], self.used)
        return bound.evaluate(columns, rows, indexes).tolist()


class _Counted:
    """An index that counts its answers."""

    def __init__(self, index: ScalarIndex, kind: str, used: Counter[str]) -> None:
        self._index, self._kind, self._used = index, kind, used
        self.rows_share_max, self.has_bits = index.rows_share_max, index.has_bits
        self.title = index.title
        self.estimate, self.finds_quickly = index.estimate, index.finds_quickly

    def find(self, lookup: Lookup) -> Found | None:
        self._used[self._kind] += 1
        return self._index.find(lookup)


def _chosen(name: str, random: Random) -> Iterator[dict[str, str]]:
    """Yield the parameters of the indexes on a field."""
    if name in KINDS:
        yield params_of(random.choice(KINDS[name]))
        return
    for path in random.sample(PATHS[name], 2):
        cast = random.choice(CASTS)
        kind = random.choice(("INVERTED", "NGRAM", "BITMAP") if cast == "VARCHAR" else ("INVERTED",))
        yield {**params_of(kind), "json_path": path, "json_cast_type": cast}
