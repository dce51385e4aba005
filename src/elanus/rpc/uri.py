"""A server's address as clients write it: a URI as for pymilvus, and how its certificate is checked."""

from __future__ import annotations

from pathlib import Path
from urllib.parse import urlsplit

from elanus.core.errors import InvalidParameter
from elanus.rpc.security import ClientSecurity

DEFAULT_PORT = 19530


def address_in(uri: str) -> str:
    """Return host:port of ``http://host:port``, with https, tcp or no scheme. Raises `InvalidParameter`."""
    try:
        parts = urlsplit(uri if "://" in uri else f"http://{uri}")
        port = parts.port or DEFAULT_PORT
    except ValueError as error:
        raise InvalidParameter(f"uri {uri!r}: {error}") from None
    if parts.scheme not in ("http", "https", "tcp") or not parts.hostname:
        raise InvalidParameter(
            f"uri {uri!r}: expected the form http://host:{DEFAULT_PORT}, or https:// for a server with TLS"
        )
    host = f"[{parts.hostname}]" if ":" in parts.hostname else parts.hostname
    return f"{host}:{port}"


def security_for(uri: str, tls_ca: str, tls_server_name: str) -> ClientSecurity | None:
    """Return how to check the server. TLS is requested by ``https`` as in pymilvus; without a uri, by naming
    the CA. None: no TLS.

    Raises `InvalidParameter` where one is given and not the other.
    """
    wanted = uri.lower().startswith("https://") if uri else bool(tls_ca)
    if not wanted and (tls_ca or tls_server_name):
        how = "a uri that begins with https://" if uri else "tls_ca too"
        raise InvalidParameter(f"tls_ca and tls_server_name are for a server with TLS: give {how}")
    return ClientSecurity(Path(tls_ca) if tls_ca else None, tls_server_name) if wanted else None
