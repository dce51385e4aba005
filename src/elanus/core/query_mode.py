"""How many hits and rows a read of a collection may ask for: the property ``query_mode``.

With the mode `LARGE_TOPK` a search, hybrid search or query may return a million; pages of iterators stay as
they are. Indexes are the same in both modes: an index search goes as deep as its limit anyway.
"""

from __future__ import annotations

from collections.abc import Mapping

from elanus.core.errors import InvalidProperty
from elanus.core.limits import LARGE_WINDOW_MAX_ROWS, QUERY_WINDOW_MAX_ROWS

QUERY_MODE_PROPERTY = "query_mode"
LARGE_TOPK = "large_topk"


def window_max_rows(properties: Mapping[str, str]) -> int:
    """Return the largest limit, and the largest sum of offset and limit, of reads of a collection.

    Raises `InvalidProperty` for a mode that there is not.
    """
    mode = properties.get(QUERY_MODE_PROPERTY)
    if mode is None:
        return QUERY_WINDOW_MAX_ROWS
    if mode.lower() != LARGE_TOPK:
        raise InvalidProperty(f'invalid {QUERY_MODE_PROPERTY} value "{mode}", valid values: [{LARGE_TOPK}]')
    return LARGE_WINDOW_MAX_ROWS
