"""NGRAM: finds texts that contain a fragment, for ``like "%fragment%"`` and other patterns.

Every run of n characters of a text is one of its *grams*. The index has the texts as `Postings` does, and for
each gram the texts that have it. A pattern's fragments are cut into grams too; the texts that have all of
them are candidates, and each candidate is tested with the pattern itself, so the answer is exact. Grams are
kept as hashes: two with the same hash only make more candidates.

Grams have from ``min_gram`` to ``max_gram`` characters, but of at most ``LENGTHS_MAX`` lengths, the shortest
ones: longer fragments are found by several of their grams. A fragment shorter than ``min_gram`` cannot be
looked up.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from elanus.core.lookup import Found, Lookup, Matching, RowNumbers
from elanus.index.files import IndexFileContent, write_index_file
from elanus.index.scalar.grams import Hashes, gram_texts, hashes_of
from elanus.index.scalar.keys import Spans, TextKeys
from elanus.index.scalar.postings import Grouped, Postings, RowNumberArray, common, grouped
from elanus.index.spec import IndexSpec

LENGTHS_MAX = 3
_GRAMS_ASKED_MAX = 16
"""So many grams of a pattern are looked up, the rarest of them intersected."""
_INTERSECTED_MAX = 4


class Ngrams(Postings):
    """Texts by grams. ``grams``: sorted hashes; ``gram_starts`` and ``gram_keys``: the texts of each."""

    def __init__(
        self,
        spec: IndexSpec,
        rows: int,
        groups: Grouped,
        grams: Hashes,
        gram_starts: npt.NDArray[np.int64],
        gram_keys: npt.NDArray[np.uint32],
    ) -> None:
        super().__init__(spec, rows, groups)
        self._grams = grams
        self._gram_starts = gram_starts
        self._gram_keys = gram_keys
        assert isinstance(groups.keys, TextKeys), "grams are of texts"
        self._texts = groups.keys

    @classmethod
    def of(cls, spec: IndexSpec, column: pa.Array) -> Ngrams:
        groups = grouped(column)
        assert isinstance(groups.keys, TextKeys), "grams are of texts"
        grams = gram_texts(groups.keys.texts, lengths_of(spec))
        return cls(spec, len(column), groups, grams.hashes, grams.starts, grams.texts)

    @property
    def _gram_arrays(self) -> dict[str, npt.NDArray[Any]]:
        return {"grams": self._grams, "gram_starts": self._gram_starts, "gram_keys": self._gram_keys}

    @property
    def memory_bytes(self) -> int:
        return super().memory_bytes + sum(array.nbytes for array in self._gram_arrays.values())

    def save(self, path: Path) -> None:
        arrays = {**self._groups.arrays, **self._gram_arrays}
        write_index_file(path, IndexFileContent(self.spec, self.rows, None, arrays))

    @classmethod
    def from_file(cls, spec: IndexSpec, content: IndexFileContent) -> Ngrams:
        arrays = content.arrays
        groups = Grouped.from_arrays(arrays)
        return cls(spec, content.rows, groups, arrays["grams"], arrays["gram_starts"], arrays["gram_keys"])

    def estimate(self, lookup: Lookup) -> int | None:
        if not isinstance(lookup, Matching):
            return super().estimate(lookup)
        candidates = self._candidates(lookup)
        return None if candidates is None else self._rows_with(candidates)

    def find(self, lookup: Lookup) -> Found | None:
        if not isinstance(lookup, Matching):
            return super().find(lookup)
        candidates = self._candidates(lookup)
        if candidates is None:
            return None
        texts = self._texts.texts.take(pa.array(candidates)).cast(pa.string())
        passed = pc.fill_null(lookup.test(texts), False).to_numpy(zero_copy_only=False)
        return RowNumbers(self._rows_of(candidates[passed]))

    def _candidates(self, lookup: Matching) -> npt.NDArray[np.uint32] | None:
        """Return the texts that have the grams of every fragment; None if no fragment is long and rare
        enough."""
        wanted = [self._asked(fragment) for fragment in lookup.fragments]
        hashes = np.unique(np.concatenate(wanted)) if wanted else np.empty(0, np.uint32)
        if not len(hashes):
            return None
        places = np.searchsorted(self._grams, hashes)
        inside = places < len(self._grams)
        if not inside.all() or (self._grams[places] != hashes).any():
            return np.empty(0, np.uint32)  # no text has this gram
        starts, ends = self._gram_starts[places], self._gram_starts[places + 1]
        rarest = np.argsort(ends - starts)[:_INTERSECTED_MAX]
        if (ends - starts)[rarest[0]] > self._worth_trying(len(self._texts)):
            return None  # testing so many texts costs more than a scan
        first, *others = [self._gram_keys[starts[n] : ends[n]] for n in rarest]
        for keys in others:
            first = common(first, keys)
        return first

    def _asked(self, fragment: str) -> Hashes:
        """Hashes of some grams of a fragment: as long as possible, spread over it."""
        lengths = [length for length in lengths_of(self.spec) if length <= len(fragment)]
        if not lengths:
            return np.empty(0, np.uint32)
        hashes = hashes_of(fragment, max(lengths))
        return hashes[:: max(1, len(hashes) // _GRAMS_ASKED_MAX)]

    def _rows_with(self, keys: npt.NDArray[np.uint32]) -> int:
        places = self._groups.places(_singles(keys))
        return int((places[:, 1] - places[:, 0]).sum())

    def _rows_of(self, keys: npt.NDArray[np.uint32]) -> RowNumberArray:
        return self._groups.rows_of(_singles(keys))


def lengths_of(spec: IndexSpec) -> range:
    """Return the lengths of the grams that are indexed."""
    low, high = int(spec.params["min_gram"]), int(spec.params["max_gram"])
    return range(low, min(high, low + LENGTHS_MAX - 1) + 1)


def _singles(keys: npt.NDArray[np.uint32]) -> Spans:
    numbers = keys.astype(np.int64)
    return np.stack((numbers, numbers + 1), axis=1)
