"""One id for all work that a client's request causes, in every process.

A trace begins at the front. A client that traces its own requests sends a `traceparent` (W3C Trace Context),
whose trace id is adopted; any other request gets a fresh one. Calls between roles carry the id in their
metadata, and each log line written while serving one of them has it as ``trace_id``. An error whose text does
not explain itself includes the id, so that the log line of the role that failed can be found.

Work that no request caused (a coordinator's own rounds) has no trace, wherever it was started. There are no
spans: durations are in the metrics.
"""

from __future__ import annotations

import asyncio
import random
import re
from collections.abc import Coroutine, Iterable, MutableMapping
from contextvars import Context, ContextVar, Token
from typing import Any, TypeVar

T = TypeVar("T")
TRACE_KEY = "elanus-trace"
"""The id between roles."""
_TRACEPARENT = "traceparent"
_TRACE_ID = re.compile(r"(?!0{32})[0-9a-f]{32}")
_PARENT = re.compile(r"(?!ff)[0-9a-f]{2}-((?!0{32})[0-9a-f]{32})-(?!0{16})[0-9a-f]{16}-[0-9a-f]{2}(-.*)?")
_trace: ContextVar[str] = ContextVar("trace", default="")
_random = random.Random()  # a private one: seeding the shared one must not repeat ids


def trace_id() -> str:
    """Return the trace id of the request being served, 32 hexadecimal digits, or ""."""
    return _trace.get()


def set_trace(trace: str) -> Token[str]:
    """Make everything that runs in this context from now on part of the trace."""
    return _trace.set(trace)


def end_trace(token: Token[str]) -> None:
    """Undo `set_trace`."""
    _trace.reset(token)


def trace_of(metadata: Iterable[tuple[str, str | bytes]]) -> str:
    """Return the id that a call's metadata carries; "" when there is none, or it is malformed."""
    for key, value in metadata:
        if key == TRACE_KEY:
            return value if isinstance(value, str) and _TRACE_ID.fullmatch(value) else ""
        if key == _TRACEPARENT:
            parent = _PARENT.fullmatch(value) if isinstance(value, str) else None
            return parent[1] if parent else ""
    return ""


def new_trace() -> str:
    return f"{_random.getrandbits(128) or 1:032x}"


def with_trace(text: str) -> str:
    """Return an error's text, with the id to look for in the logs if there is one."""
    trace = _trace.get()
    return f"{text} [trace_id={trace}]" if trace else text


def untraced(work: Coroutine[Any, Any, T], name: str | None = None) -> asyncio.Task[T]:
    """Create a task that continues after the call that begins it, and belongs to no trace."""
    return asyncio.create_task(work, name=name, context=Context())


def add_trace(_logger: Any, _method: str, event: MutableMapping[str, Any]) -> MutableMapping[str, Any]:
    """A structlog processor: adds ``trace_id`` to the line, if there is one."""
    if trace := _trace.get():
        event["trace_id"] = trace
    return event
