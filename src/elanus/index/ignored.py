"""Parameters that have no effect on an index but are accepted anyway, because the reference accepts them.

The reference's index library checks the values of the keys it knows and ignores the others. A parameter is
ignored only if it cannot change an answer.
"""

from __future__ import annotations

from collections.abc import Iterable

import structlog

_log = structlog.get_logger(__name__)

_NAMES_MAX = 1000
"""Names come from clients: beyond this many different ones, further names are not recorded."""

_noted: set[tuple[str, str]] = set()

FOREIGN_SEARCH_PARAMS = frozenset(
    {
        "ef",
        "level",
        "nprobe",
        "reorder_k",
        "search_list",
        "search_k",
        "beam_width_ratio",
        "drop_ratio_search",
        "dim_max_score_ratio",
        "max_empty_result_buckets",
        "refine_k",
        "rbq_query_bits",
        "mh_search_with_jaccard",
        "mh_lsh_batch_search",
        "mh_lsh_band",
        "mh_element_bit_width",
        "itopk_size",
        "search_width",
        "min_iterations",
        "max_iterations",
        "team_size",
        "overview_levels",
    }
)
"""Search parameters of the reference's index types: no effect where the index does not know them."""


def note_ignored(kind: str, names: Iterable[str]) -> None:
    """Log each ignored parameter, once per kind of index (or request) and name."""
    for name in names:
        if (kind, name) in _noted or len(_noted) >= _NAMES_MAX:
            continue
        _noted.add((kind, name))
        _log.warning("unknown parameter ignored", kind=kind, parameter=name)
