"""Bugs of rows that expire."""

from __future__ import annotations

import pytest

from elanus.core.time_to_live import expired_until
from elanus.core.timestamps import Timestamp


def expiry_forgotten(patch: pytest.MonkeyPatch) -> None:
    """Reads see rows that have expired, until compaction removes them."""
    patch.setattr("elanus.proxy.role.cache.expired_until", lambda ttl_s, read_ts, truncated: Timestamp(0))


def expired_too_early(patch: pytest.MonkeyPatch) -> None:
    """Rows expire two seconds before their time-to-live is over."""
    from elanus.proxy.role import cache

    patch.setattr(
        cache, "expired_until", lambda ttl_s, ts, truncated: expired_until(ttl_s and ttl_s - 2, ts, truncated)
    )


BUGS = (
    ("expiry forgotten", expiry_forgotten, frozenset({"VIS5"})),
    ("expired too early", expired_too_early, frozenset({"VIS1"})),
)
