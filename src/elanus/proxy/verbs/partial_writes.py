"""A write that only some pchannels stored: which rows these are, and what the client should do.

A write has one entry or more per pchannel, and no transaction over several pchannels. Each row is in one
entry, so each row is stored or not. Its key decides where it goes, and so whether it is.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise

import numpy as np
import pyarrow as pa

from elanus.core.channels import pchannel_of, shard_of_keys
from elanus.core.errors import PartlyWritten
from elanus.proxy.api.writes import PartialMutation
from elanus.proxy.role.cache import CachedCollection

_RANGES_SHOWN_MAX = 20


def partial_mutation(
    verb: str, keys: pa.Array, cached: CachedCollection, error: PartlyWritten, *, may_repeat: bool
) -> PartialMutation:
    """Return the error for the client. ``keys``: of all rows of the request, in its order.

    ``verb``: what happened to the rows that were stored. ``may_repeat``: repeating the request does no harm.
    """
    vchannels = cached.view.vchannels
    has_stored = np.array([pchannel_of(v) in error.pchannels for v in vchannels])
    stored = has_stored[shard_of_keys(keys, len(vchannels))]
    count = int(stored.sum())
    numbers = f", namely numbers {_ranges(np.flatnonzero(stored).tolist())} of the request, counted from 0"
    rows, which = ("keys", "") if verb == "deleted" else ("rows", numbers)
    twice = f"rows that are {verb} twice are there twice"
    if may_repeat:
        remedy = "repeating the whole request does no harm"
    elif error.is_certain:
        remedy = f"send only the other rows again, because {twice}"
    else:
        remedy = (
            f"{'the others' if count else 'some'} may have been stored all the same: look for their keys, "
            f"which are in the answer, before you send them again, because {twice}"
        )
    outcome = (
        f"{count} of {len(keys)} {rows} were {verb}{which}; the others failed"
        if count
        else f"it is not known which of {len(keys)} {rows} were {verb}"
    )
    return PartialMutation(f"{outcome}: {error.message}: {remedy}", keys, stored)


def _ranges(numbers: Sequence[int]) -> str:
    """Return ascending numbers as ranges: ``0-3, 7, 9-12``. Long lists are cut, and say so."""
    if not numbers:
        return ""
    breaks = [n for n, (a, b) in enumerate(pairwise(numbers), 1) if b != a + 1]
    bounds = list(pairwise([0, *breaks, len(numbers)]))
    shown = [(numbers[start], numbers[end - 1]) for start, end in bounds[:_RANGES_SHOWN_MAX]]
    text = ", ".join(f"{first}" if first == last else f"{first}-{last}" for first, last in shown)
    return text + (" and others (succ_index has all)" if len(bounds) > _RANGES_SHOWN_MAX else "")
