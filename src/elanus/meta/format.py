"""The form of what a cluster keeps in its metadata: one number, written by the first process of the cluster.

A process whose release knows another form must not touch it: it would misread, or write what its peers
misread. (A standalone's file has its number in the file itself, `elanus.meta.sqlite`.)
"""

from __future__ import annotations

from elanus.core.errors import InvalidParameter
from elanus.meta.port import Compare, CompareFailed, MetaStore, Put

FORMAT = 1
_KEY = "format"


async def check_format(meta: MetaStore) -> None:
    """Raises `InvalidParameter` when the metadata has another form than this release reads, `Unavailable`."""
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
