"""Messages of a stream as they are read."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

HEADERS_MAX_BYTES = 4096
"""Space for the headers of a message, including all that NATS and the client add."""


@dataclass(frozen=True, slots=True)
class IncomingMessage:
    """A stored message. ``data`` is ``None`` when only headers were requested."""

    sequence: int
    headers: Mapping[str, str]
    data: bytes | None
