"""The HTTP application: routes, and what is refused before a request reaches an endpoint.

::

    POST /v2/vectordb/<path>    an endpoint
    POST /v1/vector/<path>      one of the first generation; GET for collections and their descriptions
    GET  /openapi.json          the OpenAPI document of all endpoints; with users, for those who sign in

Other applications on the same port (static pages, for example) are mounted with ``mounts``.

`elanus.proxy.rest.entrance` has what is refused.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import Executor
from http import HTTPStatus

from starlette.applications import Starlette
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import BaseRoute, Route

from elanus.proxy.read_watch import FOLLOWED
from elanus.proxy.rest import v1
from elanus.proxy.rest.endpoint import Endpoint
from elanus.proxy.rest.entrance import Entrance, Refused, error_reply, response_of
from elanus.proxy.rest.errors import BAD_FORMAT
from elanus.proxy.rest.front import Reply, RestFront
from elanus.proxy.rest.openapi import document
from elanus.proxy.rest.sending import SentReply
from elanus.proxy.rest.table import PREFIX, TABLE
from elanus.proxy.rest.unbegun import in_thread
from elanus.proxy.rest.values import encoded
from elanus.rpc.serving.held import Held, Holding

_JSON_TYPES = ("application/json", "text/json")
_OPENAPI = "openapi.json"
"""The name of a refused request for the document, in metrics and in the audit log."""
_ANY_BYTES = 1 << 62
_WITHOUT_BODY = frozenset({"GET", "HEAD"})
_ONCE = ("authorization", "db-name")
"""Headers that a request has once: others on its way might look at another one."""
_OF_BROWSERS = ("origin", "referer", "cookie", "sec-fetch-site")


def application(
    front: RestFront,
    workers: Executor,
    *,
    body_max_bytes: int,
    is_local: bool,
    mounts: Sequence[BaseRoute] = (),
    held: Held | None = None,
) -> Starlette:
    """Return the application. Requests are answered in threads of ``workers``.

    ``is_local``: the server listens on loopback only. ``mounts``: routes of other applications. ``held``:
    counts the bytes of large bodies and answers.
    """
    api = _Api(front, workers, body_max_bytes, is_local, held or Held.up_to(_ANY_BYTES, _ANY_BYTES))
    return Starlette(
        routes=[
            Route(PREFIX + "{path:path}", api.answer, methods=["POST"]),
            Route(v1.PREFIX + "{path:path}", api.answer_v1, methods=["GET", "POST"]),
            Route("/openapi.json", api.openapi, methods=["GET"]),
            *mounts,
        ],
        exception_handlers={HTTPException: _no_route},
    )


async def _no_route(request: Request, error: Exception) -> Response:
    """Answer a path or method that there is not, with the same kind of body as any other error."""
    assert isinstance(error, HTTPException)
    if error.status_code == HTTPStatus.METHOD_NOT_ALLOWED:
        reply = error_reply(
            HTTPStatus.METHOD_NOT_ALLOWED, f"{request.url.path} does not answer {request.method}"
        )
    else:
        reply = error_reply(
            HTTPStatus(error.status_code), f"there is no {request.url.path}; see /openapi.json"
        )
    response = response_of(reply)
    response.headers.update(error.headers or {})
    if request.method not in _WITHOUT_BODY:
        response.headers["connection"] = "close"  # the body is not read
    return response


class _Api:
    def __init__(
        self, front: RestFront, workers: Executor, body_max_bytes: int, is_local: bool, held: Held
    ) -> None:
        self._held = held.requests
        self._answers = held.answers
        self._front = front
        self._workers = workers
        self._entrance = Entrance(body_max_bytes, is_local=is_local)
        self._openapi: bytes | None = None

    async def answer(self, request: Request) -> Response | SentReply:
        return await self._answer(request, TABLE, 0)

    async def answer_v1(self, request: Request) -> Response | SentReply:
        is_read = request.path_params["path"].rstrip("/") in v1.READS
        if is_read != (request.method == "GET"):
            raise HTTPException(HTTPStatus.METHOD_NOT_ALLOWED)
        return await self._answer(request, v1.TABLE, v1.SUCCESS)

    async def _answer(
        self, request: Request, table: Mapping[str, Endpoint], success: int
    ) -> Response | SentReply:
        path = request.path_params["path"].rstrip("/")
        with Holding(self._held) as holding:
            try:
                self._check(request)
                if path not in table:
                    raise Refused(HTTPStatus.NOT_FOUND, f"there is no {request.url.path}; see /openapi.json")
                body = await self._body(request, holding)
            except Refused as refused:
                response = response_of(refused.reply)
                response.headers["connection"] = "close"  # the rest of the body is not read
                return response
            headers, client = _headers(request), _client(request)
            work: Callable[[], Reply] = lambda: self._front.answer(  # noqa: E731
                path, headers, body, client, table, success
            )
            reply = await in_thread(self._workers, request.scope, work)
            is_read = not FOLLOWED.isdisjoint(table[path].operations)
            return SentReply(reply, self._answers, may_withhold=is_read)

    async def _body(self, request: Request, holding: Holding) -> bytes:
        """Return the parameters of a request. Raises `Refused`."""
        if request.method == "GET":
            return encoded(dict(request.query_params))
        return await self._entrance.body(request, holding)

    async def openapi(self, request: Request) -> Response:
        try:
            self._entrance.check_origin(request)
        except Refused as refused:
            return response_of(refused.reply)
        headers, client = _headers(request), _client(request)
        work = lambda: self._described(headers, client)  # noqa: E731
        return response_of(await in_thread(self._workers, request.scope, work))

    def _described(self, headers: Mapping[str, str], client: str) -> Reply:
        if (refused := self._front.refused(_OPENAPI, headers, client)) is not None:
            return refused
        if self._openapi is None:
            self._openapi = encoded(document())
        return Reply(HTTPStatus.OK, self._openapi)

    def _check(self, request: Request) -> None:
        self._entrance.check_origin(request)
        for name in _ONCE:
            if len(request.headers.getlist(name)) > 1:
                raise Refused(
                    HTTPStatus.BAD_REQUEST, f"the request has several headers {name.title()}: send one"
                )
        encoding = request.headers.get("content-encoding", "identity").strip().lower()
        if encoding not in ("", "identity"):
            raise Refused(
                HTTPStatus.UNSUPPORTED_MEDIA_TYPE,
                f"a body of the encoding {encoding[:100]} is not supported: send it as it is, without "
                "the header Content-Encoding",
                BAD_FORMAT,
            )
        kind = request.headers.get("content-type", _JSON_TYPES[0]).partition(";")[0].strip().lower()
        if kind not in _JSON_TYPES and not kind.endswith("+json") and _is_of_browser(request):
            raise Refused(
                HTTPStatus.UNSUPPORTED_MEDIA_TYPE,
                f"can only accept json format request, error: the content type is {kind[:100]}: "
                "send Content-Type: application/json",
                BAD_FORMAT,
            )


def _is_of_browser(request: Request) -> bool:
    """Whether a page of a browser may have sent the request.

    Any page can make a browser post a form or a text to another server, but no JSON: browsers refuse that
    type to foreign pages. Programs post JSON under any type (the Node.js client as plain text, curl as a
    form), and the reference reads the body all the same.
    """
    return any(name in request.headers for name in _OF_BROWSERS)


def _headers(request: Request) -> dict[str, str]:
    return {name.decode("latin-1"): value.decode("latin-1") for name, value in request.scope["headers"]}


def _client(request: Request) -> str:
    return request.client.host if request.client else ""
