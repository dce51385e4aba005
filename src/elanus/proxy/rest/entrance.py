"""The checks before a request reaches any application on the HTTP port: its origin, host and size.

Web pages cannot use the API of a server that their reader happens to run: a request with the ``Origin`` of
another host is refused, and no answer allows one (no CORS). A server that listens on loopback also refuses
names of hosts other than loopback's, because any name can be made to resolve to 127.0.0.1.

Slow clients cost a connection, not a thread: a body is read on the event loop, within ``BODY_WAIT_S``.
"""

from __future__ import annotations

import asyncio
from http import HTTPStatus

from starlette.requests import ClientDisconnect, Request
from starlette.responses import Response

from elanus.core.errors import Unavailable
from elanus.proxy.rest.front import Reply
from elanus.proxy.rest.values import encoded
from elanus.rpc.origins import host_of, is_local_name, place_of
from elanus.rpc.serving.held import Holding

BODY_WAIT_S = 60.0
"""How long the body of a request may take to arrive."""


class Refused(Exception):
    """A request that is not passed to an endpoint. ``reply``: the answer."""

    def __init__(self, status: HTTPStatus, message: str, code: int | None = None) -> None:
        super().__init__(message)
        self.reply = error_reply(status, message, code)


def error_reply(status: HTTPStatus, message: str, code: int | None = None) -> Reply:
    return Reply(status, encoded({"code": status.value if code is None else code, "message": message}))


def response_of(reply: Reply) -> Response:
    return Response(reply.body, reply.status, media_type="application/json")


class Entrance:
    """``is_local``: the server listens on loopback. ``body_max_bytes``: larger bodies are refused."""

    def __init__(self, body_max_bytes: int, *, is_local: bool) -> None:
        self._body_max_bytes = body_max_bytes
        self._is_local = is_local

    def check_origin(self, request: Request) -> None:
        """Raises `Refused` for a page of another origin, or a name that is not this machine's, or several."""
        hosts = request.headers.getlist("host")
        if len(hosts) > 1:
            raise Refused(HTTPStatus.BAD_REQUEST, "the request has several headers Host: send one")
        host = "".join(hosts)
        if self._is_local and not is_local_name(host_of(host)):
            raise Refused(
                HTTPStatus.FORBIDDEN,
                f"this server answers on loopback only, but is called as {host[:100]}: call it as localhost, "
                "or let it listen on another address (proxy.host)",
            )
        origin = request.headers.get("origin")
        if origin is not None and place_of(origin) != host.lower():
            raise Refused(HTTPStatus.FORBIDDEN, f"pages of {origin[:100]} may not call this server")

    async def body(self, request: Request, holding: Holding | None = None) -> bytes:
        """Return the body. Raises `Refused` if it is too large, or does not arrive in time.

        ``holding``: counts it among those of all requests; None: nothing does.
        """
        announced = request.headers.get("content-length", "0")
        if announced.isdecimal() and int(announced) > self._body_max_bytes:
            raise self._too_large()
        chunks: list[bytes] = []
        size_bytes = 0
        try:
            async with asyncio.timeout(BODY_WAIT_S):
                async for chunk in request.stream():
                    size_bytes += len(chunk)
                    if size_bytes > self._body_max_bytes:
                        raise self._too_large()
                    if holding is not None and not holding.add(len(chunk)):
                        raise Refused(HTTPStatus.SERVICE_UNAVAILABLE, holding.refusal(), Unavailable.code)
                    chunks.append(chunk)
        except TimeoutError:
            raise Refused(
                HTTPStatus.REQUEST_TIMEOUT, f"the body did not arrive within {BODY_WAIT_S:g} s"
            ) from None
        except ClientDisconnect:
            raise Refused(HTTPStatus.BAD_REQUEST, "the client closed the connection") from None
        return chunks[0] if len(chunks) == 1 else b"".join(chunks)

    def _too_large(self) -> Refused:
        limit_mb = self._body_max_bytes // (1024 * 1024)
        return Refused(
            HTTPStatus.REQUEST_ENTITY_TOO_LARGE,
            f"the body is larger than {limit_mb} MB (proxy.message_max_mb): insert fewer rows at a time",
        )
