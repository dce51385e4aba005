"""Trace ids: which are taken over, which are made, and where they show."""

from __future__ import annotations

import asyncio
import re
from typing import Any

import pytest

from elanus.rpc.tracing import (
    TRACE_KEY,
    add_trace,
    end_trace,
    new_trace,
    set_trace,
    trace_id,
    trace_of,
    untraced,
    with_trace,
)

TRACE = "4bf92f3577b34da6a3ce929d0e0e4736"
PARENT = f"00-{TRACE}-00f067aa0ba902b7-01"


@pytest.mark.parametrize(
    ("metadata", "trace"),
    [
        ([], ""),
        ([("user-agent", "x"), ("traceparent", PARENT)], TRACE),
        ([(TRACE_KEY, TRACE)], TRACE),
        # a later version may say more
        ([("traceparent", f"01-{TRACE}-00f067aa0ba902b7-01-more")], TRACE),
        ([("traceparent", f"ff-{TRACE}-00f067aa0ba902b7-01")], ""),
        ([("traceparent", f"00-{'0' * 32}-00f067aa0ba902b7-01")], ""),
        ([("traceparent", f"00-{TRACE}-{'0' * 16}-01")], ""),
        ([("traceparent", f"00-{TRACE.upper()}-00f067aa0ba902b7-01")], ""),
        ([("traceparent", "4bf92f\n")], ""),
        ([("traceparent", PARENT + "\n")], ""),
        ([(TRACE_KEY, "x" * 100_000)], ""),
        ([(TRACE_KEY, TRACE.encode())], ""),
    ],
)
def test_what_is_taken_from_a_calls_metadata(metadata: list[tuple[str, str | bytes]], trace: str) -> None:
    assert trace_of(metadata) == trace


def test_new_ones_are_w3c_ids_and_differ() -> None:
    made = {new_trace() for _ in range(1000)}
    assert len(made) == 1000
    assert all(re.fullmatch(r"[0-9a-f]{32}", trace) for trace in made)


def test_log_lines_get_the_trace_that_is_served() -> None:
    def line() -> dict[str, Any]:
        return dict(add_trace(None, "info", {"event": "e"}))

    token = set_trace(TRACE)
    assert trace_id() == TRACE
    assert line() == {"event": "e", "trace_id": TRACE}
    end_trace(token)
    assert line() == {"event": "e"}


def test_work_that_goes_on_after_a_call_is_of_nobodys_trace() -> None:
    async def now() -> str:
        return trace_id()

    async def run() -> tuple[str, str]:
        set_trace(TRACE)
        return await untraced(now(), "later"), await now()

    assert asyncio.run(run()) == ("", TRACE)


def test_a_text_names_the_trace_where_there_is_one() -> None:
    assert with_trace("broken") == "broken"
    token = set_trace(TRACE)
    assert with_trace("broken") == f"broken [trace_id={TRACE}]"
    end_trace(token)
