"""TLS of the HTTP port: each new connection is served with the certificates that the files hold by then."""

from __future__ import annotations

import ssl
from typing import Self

from elanus.rpc.security import FrontSecurity, Renewal


class RenewedContext(ssl.SSLContext):
    """A server's context that makes each connection with another one, the newest.

    Changed files get a context of their own: to one that exists, CAs can only be added, and a client could
    resume a session that began under the former CA. For one event loop. Looking at the files takes it a few
    microseconds for each connection, a tiny part of the handshake.
    """

    def __new__(cls, security: FrontSecurity) -> Self:
        return super().__new__(cls, ssl.PROTOCOL_TLS_SERVER)

    def __init__(self, security: FrontSecurity) -> None:
        """Raises `elanus.core.errors.InvalidParameter` if the files are unusable."""
        self._security = security
        self._renewal = Renewal(security, "HTTP")
        self._newest = security.serving()

    def wrap_bio(
        self,
        incoming: ssl.MemoryBIO,
        outgoing: ssl.MemoryBIO,
        server_side: bool = False,
        server_hostname: str | bytes | None = None,
        session: ssl.SSLSession | None = None,
    ) -> ssl.SSLObject:
        """Called by asyncio for each connection."""
        self._newest = self._renewal.changed(self._security.serving) or self._newest
        return self._newest.wrap_bio(incoming, outgoing, server_side, server_hostname, session)
