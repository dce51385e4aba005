"""Why a connection to a peer that answers on its port fails.

gRPC reports every failed connection alike, and keeps retrying: right for a peer that is about to start,
wrong for one that will never accept this process. So when a connection has failed, the handshake is repeated
with Python's own TLS, which reports what was wrong. Failures that waiting cannot fix are reported to callers
immediately.
"""

from __future__ import annotations

import asyncio
import ssl

from elanus.core.errors import InvalidParameter
from elanus.rpc.security import ALPN, ClientSecurity, DialSecurity, RpcSecurity

_PATIENCE_S = 2.0
SPEAKS_TLS = "it speaks TLS, and this process does not"
_PLAIN = f"{SPEAKS_TLS}; in a cluster {RpcSecurity.remedy}; {ClientSecurity.remedy}"


def is_local(address: str) -> bool:
    """Whether only this machine reaches the address: a socket file, or loopback."""
    if address.startswith("unix:"):
        return True
    host, _ = host_and_port(address)
    return host in ("localhost", "::1") or host.startswith("127.")


def host_and_port(address: str) -> tuple[str, int]:
    """Return the parts of ``host:port`` or ``[host]:port``. Raises `ValueError`."""
    host, _, port = address.rpartition(":")
    return host.strip("[]"), int(port)


async def refusal(address: str, security: DialSecurity | None) -> str:
    """Why the peer and this process can never connect; "" when there is no known reason.

    For instance, nothing may be listening there yet.
    """
    try:
        host, port = host_and_port(address)
        context = _context(security)
    except (ValueError, OSError, InvalidParameter):
        return ""  # an address of another form, or files that have changed since they were read
    name = security.server_name if security is not None else ""
    try:
        async with asyncio.timeout(_PATIENCE_S):
            reader, writer = await asyncio.open_connection(
                host, port, ssl=context, server_hostname=name or host
            )
            try:
                # A server checks our certificate after our side of the handshake has completed.
                answered = await reader.read(1)
            finally:
                writer.transport.abort()  # without waiting for the peer to close
    except ssl.SSLCertVerificationError as error:
        remedy = security.remedy if security is not None else ""
        return f"its certificate is refused: {error.verify_message}; {remedy}"
    except ssl.SSLError:
        if security is None:
            return ""
        return f"it does not speak TLS, and this process does; {security.remedy}"
    except (OSError, TimeoutError):
        return ""
    if security is None:
        return _PLAIN
    return "" if answered else f"{security.own_fault()}; {security.remedy}"


def _context(security: DialSecurity | None) -> ssl.SSLContext:
    if security is not None:
        return security.dialing()
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.check_hostname = False
    context.verify_mode = ssl.CERT_NONE
    context.set_alpn_protocols([ALPN])
    return context
