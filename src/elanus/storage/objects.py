"""Opening an object store by its URL, which is what Spark tasks are sent."""

from __future__ import annotations

from elanus.storage.backends import BACKENDS
from elanus.storage.port import ObjectStore


def open_store(url: str) -> ObjectStore:
    """Return the store at a URL of a scheme of `BACKENDS`. Opening writes nothing.

    Raises `elanus.core.errors.InvalidParameter` for anything else.
    """
    return BACKENDS.of(url).open(url)
