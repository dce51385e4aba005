"""Requests that took long, as the slow log keeps them."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class SlowRequest:
    """``at_ms``: when it was answered, UTC. ``code``: that of its answer, 0 for success. ``trace``: the id
    by which log lines of all processes name the request. ``text``: the explanation, "" for a request that was
    not followed. ``process``: the number of the serving process that answered it, 1 for the main process."""

    at_ms: int
    request: str
    database: str
    collection: str
    ms: float
    code: int
    trace: str
    text: str
    process: int = 1
