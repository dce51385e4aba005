"""The format version of a cluster's metadata: one number, written by the first process of the cluster.

A process whose release uses another format must not touch the metadata: it would misread it, or write what
its peers misread. (A standalone's number is in the SQLite file itself, see `elanus.meta.sqlite`.)
"""

from __future__ import annotations

from elanus.core.errors import InvalidParameter
from elanus.meta.port import Compare, CompareFailed, MetaStore, Put

FORMAT = 1
_KEY = "format"


async def check_format(meta: MetaStore) -> None:
    """Raises `InvalidParameter` if this release cannot read the metadata's format, and `Unavailable`."""
    found = await meta.get(_KEY)
    if found is None:
        try:
            await meta.txn([Put(_KEY, str(FORMAT).encode())], [Compare(_KEY, 0)])
        except CompareFailed:
            await check_format(meta)  # another process was the first
        return
    written = found.value.decode(errors="replace")
    if written != str(FORMAT):
        raise InvalidParameter(
            f"the cluster's metadata has format {written}, this release reads {FORMAT}: run the release that "
            "wrote it, or give this one another prefix in meta.url"
        )
