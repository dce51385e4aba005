"""The values of JSON documents at any path: INVERTED with the cast type JSON.

Each value is a key by its entry (`elanus.core.documents`). The index finds equal values and the elements of
arrays, at each path below the one that is indexed; not ranges.
"""

from __future__ import annotations

import pyarrow as pa

from elanus.core.documents import entry_of
from elanus.core.lookup import Holds, Inside, Lookup
from elanus.index.scalar.keys import Spans
from elanus.index.scalar.postings import Postings


class Documents(Postings):
    """The rows of each entry. Answers `Inside` only: its keys mean nothing else."""

    def _spans(self, lookup: Lookup) -> Spans | None:
        entries = _entries(lookup)
        return None if entries is None else super()._spans(entries)

    def _wanted(self, lookup: Lookup) -> Holds | None:
        return _entries(lookup)


def _entries(lookup: Lookup) -> Holds | None:
    """Return the lookup among entries; None if there is none that is equivalent."""
    if not isinstance(lookup, Inside):
        return None
    inner = lookup.lookup
    of_array = isinstance(inner, Holds)
    entries = {entry_of(lookup.path, value, of_array=of_array) for value in inner.values.to_pylist()}
    if None in entries:
        return None
    return Holds(
        pa.array(sorted(filter(None, entries)), pa.string()), isinstance(inner, Holds) and inner.need_all
    )
