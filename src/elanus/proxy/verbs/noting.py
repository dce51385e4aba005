"""The notes that the verbs of reads make for an explanation. Without a trail each function is one look-up."""

from __future__ import annotations

from elanus.core.consistency import ReadConsistency
from elanus.core.timestamps import Timestamp
from elanus.core.trail import current
from elanus.expr import BoundFilter
from elanus.proxy.role.cache import CachedCollection


def note_read(
    cached: CachedCollection,
    consistency: ReadConsistency,
    read_ts: Timestamp,
    bound: BoundFilter | None,
    asked: str = "",
    *counts: int,
) -> None:
    """``asked``: a format of what the client wants, which the ``counts`` fill in."""
    trail = current()
    if trail is not None:
        facts = trail.facts
        facts["collection"], facts["consistency"], facts["read_ts"] = cached, consistency, read_ts
        if bound is not None:
            facts["filter"] = bound
        if asked:
            facts["asked"] = asked, *counts


def note_answer(text: str, *counts: int) -> None:
    """``text``: a format of what the client gets, which the ``counts`` fill in."""
    trail = current()
    if trail is not None:
        trail.facts["answer"] = text, *counts
