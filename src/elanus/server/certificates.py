"""The certificates that the settings name, loaded and checked before anything is served with them."""

from __future__ import annotations

from pathlib import Path

from elanus.core.errors import InvalidParameter
from elanus.rpc.security import FrontSecurity, RpcSecurity
from elanus.server.settings import ProxySettings
from elanus.server.settings_services import ClusterSettings
from elanus.server.startup import CannotStart


def cluster_security(settings: ClusterSettings) -> RpcSecurity | None:
    """Certificates for calls between processes; None when none are set. Raises `CannotStart`."""
    if not settings.tls_cert:
        return None
    files = (Path(settings.tls_cert), Path(settings.tls_key), Path(settings.tls_ca))
    security = RpcSecurity(*files, settings.tls_server_name)
    try:
        security.check()
    except InvalidParameter as error:
        raise CannotStart(f"cluster.tls_cert, cluster.tls_key, cluster.tls_ca: {error.message}") from error
    return security


def front_security(settings: ProxySettings) -> FrontSecurity | None:
    """Certificates for client connections; None when none are set. Raises `CannotStart`."""
    if not settings.tls_cert:
        return None
    client_ca = Path(settings.tls_client_ca) if settings.tls_client_ca else None
    security = FrontSecurity(Path(settings.tls_cert), Path(settings.tls_key), client_ca)
    try:
        security.check()
    except InvalidParameter as error:
        raise CannotStart(f"proxy.tls_cert, proxy.tls_key, proxy.tls_client_ca: {error.message}") from error
    return security
