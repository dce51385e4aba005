"""The parameters by which a client requests a page of a second-generation search iterator.

``search_iter_v2`` marks such a request. ``search_iter_batch_size`` is the maximum number of rows on a page.
``search_iter_id`` and ``search_iter_last_bound`` come from the answer to the previous page. All pages are
answered as of the request's guarantee timestamp, which the Node.js client sends as a parameter.
"""

from __future__ import annotations

import math
from collections.abc import Mapping

import numpy as np

from elanus.core.errors import InvalidParameter
from elanus.core.limits import TOP_K_MAX
from elanus.proxy.api.search import IteratorPage
from elanus.proxy.wire.parameters import boolean, integer

_V2 = "search_iter_v2"
_BATCH = "search_iter_batch_size"
_ID = "search_iter_id"
_BOUND = "search_iter_last_bound"
_GUARANTEE = "guarantee_timestamp"
ITERATOR_PARAMS = frozenset({_V2, _BATCH, _ID, _BOUND, _GUARANTEE})
"""The names of these parameters."""
_ID_MAX_CHARS = 256


def iterator_page(params: Mapping[str, str], limit: int, offset: int) -> IteratorPage | None:
    """Return the requested page; ``None`` if the search is not an iterator's. Raises `InvalidParameter`."""
    if not boolean(params, _V2):
        return None
    if offset:
        raise InvalidParameter(
            f"Setting an offset is not permitted when using a search iterator v2: offset is {offset}"
        )
    size = limit if (size := integer(params, _BATCH)) is None else size
    if not 1 <= size <= TOP_K_MAX:
        raise InvalidParameter(f"{_BATCH} [{size}] is invalid, should be in range [1, {TOP_K_MAX}]")
    token = params.get(_ID, "")
    if len(token) > _ID_MAX_CHARS:
        raise InvalidParameter(f"{_ID} is invalid: it has {len(token)} characters, a token has fewer")
    return IteratorPage(size, token, _bound(params))


def check_one_vector(page: IteratorPage | None, nq: int) -> None:
    """Raises `InvalidParameter` for a page with hits of several vectors."""
    if page is not None and nq != 1:
        raise InvalidParameter(f"nq [{nq}] is invalid: a search iterator takes one vector")


def page_timestamp(params: Mapping[str, str]) -> int:
    """Return the first page's timestamp from its parameter, 0 if the parameter is missing."""
    ts = integer(params, _GUARANTEE) or 0
    if not 0 <= ts < 2**64:
        raise InvalidParameter(f"{_GUARANTEE} [{ts}] is invalid, should be a hybrid timestamp")
    return ts


def _bound(params: Mapping[str, str]) -> float | None:
    text = params.get(_BOUND)
    if text is None:
        return None
    try:
        bound = float(text)
    except ValueError:
        bound = math.nan
    if not math.isfinite(bound) or abs(bound) > float(np.finfo(np.float32).max):
        raise InvalidParameter(f"{_BOUND} [{text[:100]}] is invalid, should be a number")
    return float(np.float32(bound))
