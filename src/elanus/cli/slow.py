"""`elanus slow`: the slow requests of a running server, each with the explanation of what took so long."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from datetime import UTC, datetime

import msgspec
from rich.console import Console

from elanus.cli import remote
from elanus.cli.columns import show
from elanus.core.slow_requests import SlowRequest


def slow_at(base_url: str) -> list[SlowRequest]:
    """Return the slow log of the server at that address, oldest first. Raises `NoAnswer`."""
    try:
        return msgspec.json.decode(remote.get(f"{base_url}/slow"), type=list[SlowRequest])
    except msgspec.DecodeError as error:
        raise remote.NoAnswer(f"the answer is not of this release: {error}") from None


def show_slow(found: Sequence[SlowRequest], console: Console | None = None) -> None:
    """Print the requests, the latest last."""
    console = console or Console()
    for line in lines_of(found):
        show(console, line)


def lines_of(found: Sequence[SlowRequest]) -> Iterator[str]:
    if not found:
        yield "no slow requests (proxy.slow_request_ms says which are)"
    for one in found:
        moment = datetime.fromtimestamp(one.at_ms / 1000, UTC).strftime("%Y-%m-%d %H:%M:%S")
        failed = f", code {one.code}" if one.code else ""
        where = f", process {one.process}" if one.process > 1 else ""
        found_at = f"{one.database}.{one.collection}{failed}{where}"
        yield f"{moment} UTC  {one.request} on {found_at}, trace {one.trace}"
        text = one.text or f"{one.ms:.2f} ms; not followed: no read had been slow in the minute before"
        yield from (f"  {line}" for line in text.splitlines())
