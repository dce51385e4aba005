"""The location of a cluster's metadata, as a value: ``etcd://host:2379,other:2379/prefix``.

The path is the prefix of all keys, ``elanus`` by default: clusters that share an etcd use different
prefixes. ``etcds`` means an encrypted connection, with ``?ca=/file`` for a CA that the system does not
know, and ``&cert=/file&key=/file`` where etcd authenticates its clients by certificates.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any, Self
from urllib.parse import parse_qsl, unquote, urlsplit

from elanus.core.backends import names_server, without_user
from elanus.core.errors import InvalidParameter

DEFAULT_PREFIX = "elanus"
_DEFAULT_PORT = 2379
FORM = "etcd://host:port[,host:port]/prefix, or etcds://... with ?ca=/file&cert=/file&key=/file"
_FILES = ("ca", "cert", "key")


@dataclass(frozen=True, slots=True)
class EtcdSource:
    """``endpoints``: ``host:port`` of each member. The files are PEM, and only used with ``tls``."""

    endpoints: tuple[str, ...]
    prefix: str = DEFAULT_PREFIX
    tls: bool = False
    ca: Path | None = None
    cert: Path | None = None
    key: Path | None = None

    @classmethod
    def parse(cls, url: str) -> Self:
        """Raises `InvalidParameter`."""
        parts = urlsplit(url)
        hosts = [host for host in parts.netloc.split(",") if host]
        prefix = unquote(parts.path.strip("/")) or DEFAULT_PREFIX
        plain = prefix.replace("-", "").replace("_", "").replace("/", "")
        query = dict(parse_qsl(parts.query, keep_blank_values=True))
        tls = parts.scheme == "etcds"
        wrong = (
            parts.scheme not in ("etcd", "etcds")
            or not hosts
            or not all(map(names_server, hosts))
            or "@" in parts.netloc
            or not plain.isalnum()
            or not query.keys() <= set(_FILES)
            or not all(query.values())
            or (query and not tls)
            or ("cert" in query) != ("key" in query)
        )
        if wrong:
            raise InvalidParameter(f"metadata {without_user(url)!r}: expected a URL of the form {FORM}")
        endpoints = tuple(host if ":" in host else f"{host}:{_DEFAULT_PORT}" for host in hosts)
        return cls(endpoints, prefix, tls, *(Path(query[f]) if f in query else None for f in _FILES))

    def credentials(self) -> Any:
        """Credentials for a gRPC channel; None without TLS. Raises `InvalidParameter` for a missing file."""
        if not self.tls:
            return None
        import grpc  # a URL is checked without it

        ca, cert, key = (_read(path) for path in (self.ca, self.cert, self.key))
        return grpc.ssl_channel_credentials(root_certificates=ca, private_key=key, certificate_chain=cert)


def _read(path: Path | None) -> bytes | None:
    if path is None:
        return None
    try:
        return path.read_bytes()
    except OSError as error:
        raise InvalidParameter(f"meta.url: {path} cannot be read: {error.strerror}") from error
