"""The backends of a cluster's metadata, by the scheme of `meta.url`.

A standalone server keeps its metadata in its data directory (`elanus.meta.sqlite`) and selects nothing.
"""

from __future__ import annotations

from elanus.core.backends import Backends
from elanus.meta import etcd_backend
from elanus.meta.port import MetaBackend

BACKENDS: Backends[MetaBackend] = Backends(
    "metadata", "meta.url", {"etcd": etcd_backend.BACKEND, "etcds": etcd_backend.BACKEND}
)
