"""Reading a range of etcd in pages.

A page is limited by its number of keys, and its answer by a size, which etcd does not know: records have up
to a megabyte and a half. So each page is sized by the one before it.
"""

from __future__ import annotations

from collections.abc import AsyncGenerator, Awaitable
from typing import Any

from elanus.meta.etcd_link import EtcdLink, Kv, MessageTooLarge

_FIRST_KEYS = 100
_KEYS_MAX = 1000
_PAGE_BYTES = 4 * 1024 * 1024
"""About the size of an answer: it has to arrive within one attempt."""


async def pages(link: EtcdLink, begin: bytes, end: bytes) -> AsyncGenerator[Any, None]:
    """Yield the answers of etcd, all of one revision, at least one; the last one has no ``more``."""
    size, revision = _PageSize(), 0
    while True:
        page = await size.ask(link, key=begin, range_end=end, revision=revision)
        revision = revision or page.header.revision
        yield page
        if not page.more:
            return
        begin = page.kvs[-1].key + b"\0"


class _PageSize:
    """How many keys the next page has."""

    def __init__(self) -> None:
        self._keys = _FIRST_KEYS

    async def ask(self, link: EtcdLink, **request: Any) -> Any:
        """Return one page. It is as small as it has to be for its answer to arrive."""
        asked = 0

        def attempt(channel: Any, timeout_s: float) -> Awaitable[Any]:
            nonlocal asked
            asked = self._keys
            self._keys = max(1, asked // 2)  # of the next attempt, if this one has no answer
            return Kv.range(**request, limit=asked)(channel, timeout_s)

        while True:
            try:
                page = await link.repeat(attempt)
            except MessageTooLarge:
                if asked == 1:
                    raise
                continue
            fitting = _PAGE_BYTES * max(1, len(page.kvs)) // max(1, page.ByteSize())
            self._keys = max(1, min(fitting, 2 * asked, _KEYS_MAX))
            return page
