"""The HTTP application: routes, and what is refused before a request reaches an endpoint.

::

    POST /v2/vectordb/<path>    an endpoint
    POST /v1/vector/<path>      one of the first generation; GET for collections and their descriptions
    GET  /openapi.json          the OpenAPI document of all endpoints

Other applications on the same port (static pages, for example) are mounted with ``mounts``.

Web pages cannot use the API of a server that their reader happens to run: a request with the ``Origin`` of
another host is refused, and no answer allows one (no CORS). A server that listens on loopback also refuses
names of hosts other than loopback's, because any name can be made to resolve to 127.0.0.1.

Slow clients cost a connection, not a thread: a body is read on the event loop, within ``BODY_WAIT_S``.
"""

from __future__ import annotations

import asyncio
import ipaddress
from collections.abc import Awaitable, Callable, Mapping, Sequence
from concurrent.futures import Executor
from http import HTTPStatus
from typing import Any
from urllib.parse import urlsplit

from starlette.applications import Starlette
from starlette.exceptions import HTTPException
from starlette.requests import ClientDisconnect, Request
from starlette.responses import Response
from starlette.routing import BaseRoute, Route

from elanus.proxy.rest import v1
from elanus.proxy.rest.endpoint import Endpoint
from elanus.proxy.rest.errors import BAD_FORMAT
from elanus.proxy.rest.front import Reply, RestFront
from elanus.proxy.rest.openapi import document
from elanus.proxy.rest.table import PREFIX, TABLE
from elanus.proxy.rest.values import encoded

BODY_WAIT_S = 60.0
"""How long the body of a request may take to arrive."""
_JSON_TYPES = ("application/json", "text/json")
_LOCAL_NAMES = frozenset({"localhost", ""})


def application(
    front: RestFront,
    workers: Executor,
    *,
    body_max_bytes: int,
    is_local: bool,
    mounts: Sequence[BaseRoute] = (),
) -> Starlette:
    """Return the application. Requests are answered in threads of ``workers``.

    ``is_local``: the server listens on loopback only. ``mounts``: routes of other applications.
    """
    api = _Api(front, workers, body_max_bytes, is_local)
    return Starlette(
        routes=[
            Route(PREFIX + "{path:path}", api.answer, methods=["POST"]),
            Route(v1.PREFIX + "{path:path}", api.answer_v1, methods=["GET", "POST"]),
            Route("/openapi.json", api.openapi, methods=["GET"]),
            *mounts,
        ],
        exception_handlers={HTTPException: _no_route},
    )


class _Refused(Exception):
    """A request that is not passed to an endpoint."""

    def __init__(self, status: HTTPStatus, message: str, code: int | None = None) -> None:
        super().__init__(message)
        self.reply = _reply(status, message, code)


def _reply(status: HTTPStatus, message: str, code: int | None = None) -> Reply:
    return Reply(status, encoded({"code": status.value if code is None else code, "message": message}))


def _response(reply: Reply) -> Response:
    return Response(reply.body, reply.status, media_type="application/json")


async def _no_route(request: Request, error: Exception) -> Response:
    """Answer a path or method that there is not, with the same kind of body as any other error."""
    assert isinstance(error, HTTPException)
    if error.status_code == HTTPStatus.METHOD_NOT_ALLOWED:
        reply = _reply(HTTPStatus.METHOD_NOT_ALLOWED, f"{request.url.path} does not answer {request.method}")
    else:
        reply = _reply(HTTPStatus(error.status_code), f"there is no {request.url.path}; see /openapi.json")
    response = _response(reply)
    response.headers.update(error.headers or {})
    return response


class _Api:
    def __init__(self, front: RestFront, workers: Executor, body_max_bytes: int, is_local: bool) -> None:
        self._front = front
        self._workers = workers
        self._body_max_bytes = body_max_bytes
        self._is_local = is_local
        self._openapi: bytes | None = None

    async def answer(self, request: Request) -> Response:
        return await self._answer(request, TABLE, 0)

    async def answer_v1(self, request: Request) -> Response:
        is_read = request.path_params["path"].rstrip("/") in v1.READS
        if is_read != (request.method == "GET"):
            raise HTTPException(HTTPStatus.METHOD_NOT_ALLOWED)
        return await self._answer(request, v1.TABLE, v1.SUCCESS)

    async def _answer(self, request: Request, table: Mapping[str, Endpoint], success: int) -> Response:
        path = request.path_params["path"].rstrip("/")
        try:
            self._check(request)
            if path not in table:
                raise _Refused(HTTPStatus.NOT_FOUND, f"there is no {request.url.path}; see /openapi.json")
            is_read = request.method == "GET"
            body = encoded(dict(request.query_params)) if is_read else await self._body(request)
        except _Refused as refused:
            response = _response(refused.reply)
            response.headers["connection"] = "close"  # the rest of the body is not read
            return response
        headers = {
            name.decode("latin-1"): value.decode("latin-1") for name, value in request.scope["headers"]
        }
        client = request.client.host if request.client else ""
        work: Callable[[], Reply] = lambda: self._front.answer(path, headers, body, client, table, success)  # noqa: E731
        return _response(await self._in_thread(work))

    async def openapi(self, request: Request) -> Response:
        try:
            self._check_origin(request)
        except _Refused as refused:
            return _response(refused.reply)
        if self._openapi is None:
            self._openapi = await self._in_thread(lambda: encoded(document()))
        return _response(Reply(HTTPStatus.OK, self._openapi))

    def _in_thread(self, work: Callable[[], Any]) -> Awaitable[Any]:
        return asyncio.get_running_loop().run_in_executor(self._workers, work)

    def _check(self, request: Request) -> None:
        self._check_origin(request)
        kind = request.headers.get("content-type", _JSON_TYPES[0]).partition(";")[0].strip().lower()
        if kind not in _JSON_TYPES and not kind.endswith("+json"):
            raise _Refused(
                HTTPStatus.UNSUPPORTED_MEDIA_TYPE,
                f"can only accept json format request, error: the content type is {kind[:100]}: "
                "send Content-Type: application/json",
                BAD_FORMAT,
            )

    def _check_origin(self, request: Request) -> None:
        host = request.headers.get("host", "")
        if self._is_local and not is_local_name(_host_of(f"//{host}")):
            raise _Refused(
                HTTPStatus.FORBIDDEN,
                f"this server answers on loopback only, but is called as {host[:100]}: call it as localhost, "
                "or let it listen on another address (proxy.host)",
            )
        origin = request.headers.get("origin")
        if origin is not None and place_of(origin) != host.lower():
            raise _Refused(HTTPStatus.FORBIDDEN, f"pages of {origin[:100]} may not call this server")

    async def _body(self, request: Request) -> bytes:
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
                    chunks.append(chunk)
        except TimeoutError:
            raise _Refused(
                HTTPStatus.REQUEST_TIMEOUT, f"the body did not arrive within {BODY_WAIT_S:g} s"
            ) from None
        except ClientDisconnect:
            raise _Refused(HTTPStatus.BAD_REQUEST, "the client closed the connection") from None
        return chunks[0] if len(chunks) == 1 else b"".join(chunks)

    def _too_large(self) -> _Refused:
        limit_mb = self._body_max_bytes // (1024 * 1024)
        return _Refused(
            HTTPStatus.REQUEST_ENTITY_TOO_LARGE,
            f"the body is larger than {limit_mb} MB (proxy.message_max_mb): insert fewer rows at a time",
        )


def _host_of(url: str) -> str:
    try:
        return urlsplit(url).hostname or ""
    except ValueError:
        return "?"


def place_of(origin: str) -> str:
    """Return host and port of an origin, in lower case; a text that no host has if it is none."""
    try:
        return urlsplit(origin).netloc.lower() or "?"
    except ValueError:
        return "?"


def is_local_name(host: str) -> bool:
    """Whether a host names this machine's loopback, whatever the name service says."""
    if host in _LOCAL_NAMES or host.endswith(".localhost"):
        return True
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return False
