"""How many bytes the large requests take together that are being received or answered.

Each has a limit of its own, but a client may send many at a time, and those that no thread answers yet wait
in memory. Beyond the limit further ones are refused, and may be sent again.
"""

from __future__ import annotations

import threading

SMALL_MAX_BYTES = 64 * 1024
"""Smaller requests are not counted, and never refused for this."""
_MB = 1024 * 1024


class HeldBytes:
    """For any thread. ``max_bytes``: at least what one request may have."""

    def __init__(self, max_bytes: int) -> None:
        self._max_bytes = max_bytes
        self._held_bytes = 0
        self._lock = threading.Lock()

    @property
    def held_bytes(self) -> int:
        return self._held_bytes

    def add(self, size_bytes: int) -> bool:
        """Hold so many more bytes. Returns False, and holds none of them, if they are too many."""
        with self._lock:
            if self._held_bytes + size_bytes > self._max_bytes:
                return False
            self._held_bytes += size_bytes
            return True

    def remove(self, size_bytes: int) -> None:
        with self._lock:
            self._held_bytes -= size_bytes

    def refusal(self) -> str:
        """Return the text for a client whose request is refused."""
        return (
            f"requests of {self._held_bytes // _MB} MB are being received or answered, and "
            f"proxy.requests_max_mb allows {self._max_bytes // _MB}: retry, or send smaller requests"
        )


class Holding:
    """The bytes that one request holds, from its first piece on until the end of the block."""

    def __init__(self, held: HeldBytes) -> None:
        self._held = held
        self._received_bytes = 0
        self._counted_bytes = 0

    def __enter__(self) -> Holding:
        return self

    def __exit__(self, *_: object) -> None:
        self._held.remove(self._counted_bytes)
        self._counted_bytes = 0

    def add(self, size_bytes: int) -> bool:
        """Hold a further piece. Returns False if it is too much."""
        self._received_bytes += size_bytes
        more_bytes = max(0, self._received_bytes - SMALL_MAX_BYTES) - self._counted_bytes
        if not self._held.add(more_bytes):
            return False
        self._counted_bytes += more_bytes
        return True

    def refusal(self) -> str:
        return self._held.refusal()
