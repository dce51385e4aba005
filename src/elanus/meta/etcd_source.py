"""Where a cluster's metadata is, as a value: ``etcd://host:2379,other:2379/prefix``.

The path is what all keys begin with, ``elanus`` when there is none: clusters that share an etcd have
different ones.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Self
from urllib.parse import unquote, urlsplit

from elanus.core.errors import InvalidParameter

DEFAULT_PREFIX = "elanus"
_DEFAULT_PORT = 2379
_FORM = "etcd://host:port[,host:port]/prefix"


@dataclass(frozen=True, slots=True)
class EtcdSource:
    """``endpoints``: ``host:port`` of each member."""

    endpoints: tuple[str, ...]
    prefix: str = DEFAULT_PREFIX

    @classmethod
    def parse(cls, url: str) -> Self:
        """Raises `InvalidParameter`."""
        parts = urlsplit(url)
        hosts = [host for host in parts.netloc.split(",") if host]
        prefix = unquote(parts.path.strip("/")) or DEFAULT_PREFIX
        plain = prefix.replace("-", "").replace("_", "").replace("/", "")
        if parts.scheme != "etcd" or not hosts or parts.query or "@" in parts.netloc or not plain.isalnum():
            raise InvalidParameter(f"metadata {url!r}: expected a URL of the form {_FORM}")
        return cls(tuple(host if ":" in host else f"{host}:{_DEFAULT_PORT}" for host in hosts), prefix)
