"""Waiting in real time for what other threads or processes bring about."""

from __future__ import annotations

import time
from collections.abc import Callable

LIMIT_S = 60.0
"""A limit for a broken system: many times what a busy machine needs."""


def until(condition: Callable[[], object], what: str) -> None:
    """Return when the condition is true. ``what``: the condition in words, for the failure."""
    deadline_s = time.monotonic() + LIMIT_S
    while not condition():
        assert time.monotonic() < deadline_s, f"not within {LIMIT_S:g} s: {what}"
        time.sleep(0.01)
