"""The backends of the object store, by the scheme of `storage.url`."""

from __future__ import annotations

from elanus.core.backends import Backends
from elanus.storage import local_backend, s3_backend
from elanus.storage.port import StorageBackend

BACKENDS: Backends[StorageBackend] = Backends(
    "object store", "storage.url", {"file": local_backend.BACKEND, "s3": s3_backend.BACKEND}
)
