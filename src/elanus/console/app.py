"""The console's routes on the HTTP port.

::

    GET    /                     leads to the page
    GET    /ui/                  the page; /ui/NAME are its files
    GET    /ui/api/session       who signed in, and whether anybody has to
    POST   /ui/api/session       sign in: {"user": ..., "password": ...}
    DELETE /ui/api/session       sign out
    GET    /ui/api/status        the status of the server
    GET    /ui/api/doctor        what is wrong by it
    GET    /ui/api/audit         the latest records of the audit log
    POST   /ui/api/view/NAME     segments, projection and others (`elanus.console.views`)
    POST   /ui/api/call/PATH     an endpoint of the REST API, as the user of the session

Browsers send the cookie of a session with any request to this host, so a request that is no GET must have the
header ``X-Elanus-Request``: pages of other origins cannot set it. The cookie is ``SameSite=Strict`` as well.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterator, Mapping
from concurrent.futures import Executor
from contextlib import contextmanager
from http import HTTPStatus
from typing import NamedTuple

from msgspec import field
from starlette.requests import Request
from starlette.responses import RedirectResponse, Response
from starlette.routing import BaseRoute, Route

from elanus import __version__
from elanus.console.files import INDEX, static_files
from elanus.console.sessions import SESSION_S, Sessions
from elanus.console.status import AUDIT, DOCTOR, STATUS, data_of
from elanus.console.views import VIEWS
from elanus.core.errors import ElanusError
from elanus.proxy.access.caller import Caller
from elanus.proxy.calls import Calls
from elanus.proxy.rest.bodies import Body
from elanus.proxy.rest.endpoint import Endpoint, Session
from elanus.proxy.rest.entrance import Entrance, Refused, response_of
from elanus.proxy.rest.front import TIMEOUT_DEFAULT_S, Reply, answer_of, reply_of
from elanus.proxy.rest.reading import read
from elanus.proxy.rest.table import TABLE
from elanus.proxy.rest.unbegun import in_thread
from elanus.rpc.serving.held import Held, Holding
from elanus.rpc.tracing import new_trace

COOKIE = "elanus_session"
REQUEST_HEADER = "X-Elanus-Request"
SIGN_IN = "Console.SignIn"
"""The name of a refused sign-in in metrics and in the audit log."""
HEADERS: Mapping[str, str] = {
    "Content-Security-Policy": "default-src 'self'; base-uri 'none'; form-action 'self'; "
    "frame-ancestors 'none'",
    "X-Content-Type-Options": "nosniff",
    "Referrer-Policy": "no-referrer",
    "Cross-Origin-Opener-Policy": "same-origin",
}
"""Sent with every answer of the console."""

REPORTS: Mapping[str, str] = {"status": STATUS, "doctor": DOCTOR, "audit": AUDIT}
"""The operations without a request, by their paths below ``/ui/api/``."""

Handler = Callable[[Request], Awaitable[Response]]


class SignInBody(Body, kw_only=True):
    user: str
    password: str = field(default="")


class Site(NamedTuple):
    """The port that the console is on. ``has_tls``: the cookie is for encrypted connections only. ``held``:
    counts the bytes of large requests; None: nothing does."""

    body_max_bytes: int
    is_local: bool
    has_tls: bool
    held: Held | None = None


def console_routes(calls: Calls, sessions: Sessions, workers: Executor, site: Site) -> list[BaseRoute]:
    """Return the routes, for ``mounts`` of the REST application.

    ``calls``: among them those of `elanus.console.status`. Requests are answered in threads of ``workers``.
    """
    console = _Console(calls, sessions, workers, site)
    return [
        Route("/", console.guarded(console.lead), methods=["GET"]),
        Route("/ui", console.guarded(console.redirect), methods=["GET"]),
        Route("/ui/", console.guarded(console.file), methods=["GET"]),
        Route("/ui/api/session", console.guarded(console.session), methods=["GET", "POST", "DELETE"]),
        *(
            Route(f"/ui/api/{path}", console.guarded(console.report(name)), methods=["GET"])
            for path, name in REPORTS.items()
        ),
        Route("/ui/api/view/{path}", console.guarded(console.view), methods=["POST"]),
        Route("/ui/api/call/{path:path}", console.guarded(console.call), methods=["POST"]),
        Route("/ui/{name}", console.guarded(console.file), methods=["GET"]),
    ]


class _Console:
    def __init__(self, calls: Calls, sessions: Sessions, workers: Executor, site: Site) -> None:
        self._calls = calls
        self._sessions = sessions
        self._workers = workers
        self._entrance = Entrance(site.body_max_bytes, is_local=site.is_local)
        self._has_tls = site.has_tls
        self._held = site.held

    def guarded(self, handler: Handler) -> Handler:
        """Return the handler behind the checks of the port; its answers have the console's headers."""

        async def handle(request: Request) -> Response:
            try:
                self._entrance.check_origin(request)
                if request.method not in ("GET", "HEAD") and REQUEST_HEADER not in request.headers:
                    raise Refused(HTTPStatus.FORBIDDEN, f"{request.method} needs the header {REQUEST_HEADER}")
                response = await handler(request)
            except Refused as refused:
                response = response_of(refused.reply)
                response.headers["connection"] = "close"  # the rest of the body is not read
            response.headers.update(HEADERS)
            response.headers.setdefault("Cache-Control", "no-store")
            return response

        return handle

    async def lead(self, request: Request) -> Response:
        """The address that the server prints is opened as it is."""
        return RedirectResponse("/ui/", HTTPStatus.TEMPORARY_REDIRECT)

    async def redirect(self, request: Request) -> Response:
        return RedirectResponse("/ui/", HTTPStatus.PERMANENT_REDIRECT)

    async def file(self, request: Request) -> Response:
        found = static_files().get(request.path_params.get("name", INDEX))
        if found is None:
            raise Refused(HTTPStatus.NOT_FOUND, f"there is no {request.url.path}")
        headers = {"ETag": found.tag, "Cache-Control": "no-cache"}
        if request.headers.get("if-none-match") == found.tag:
            return Response(status_code=HTTPStatus.NOT_MODIFIED, headers=headers)
        return Response(found.content, media_type=found.media_type, headers=headers)

    async def session(self, request: Request) -> Response:
        if request.method == "POST":
            return await self._sign_in(request)
        if request.method == "DELETE":
            self._sessions.end(request.cookies.get(COOKIE, ""))
            response = await self._reply(request, dict)
            response.delete_cookie(COOKIE, path="/ui", httponly=True, samesite="strict", secure=self._has_tls)
            return response
        return await self._reply(request, lambda: {"user": self._user(request), **self._facts()})

    def _facts(self) -> Mapping[str, object]:
        return {"version": __version__, "signInNeeded": self._sessions.are_needed}

    @contextmanager
    def _holding(self) -> Iterator[Holding | None]:
        """Count the body of a request until it is answered."""
        if self._held is None:
            yield None
        else:
            with Holding(self._held.requests) as holding:
                yield holding

    async def _sign_in(self, request: Request) -> Response:
        with self._holding() as holding:
            body = await self._entrance.body(request, holding)
            return await self._signed_in(request, body)

    async def _signed_in(self, request: Request, body: bytes) -> Response:
        origin = request.client.host if request.client else ""
        session_ids: list[str] = []

        def work() -> Mapping[str, object]:
            sent = read(body, SignInBody)
            try:
                session_ids.append(self._sessions.begin(sent.user, sent.password, origin))
            except ElanusError as error:
                self._calls.refuse(SIGN_IN, self._caller(request, sent.user), error)
                raise
            return {"user": sent.user, **self._facts()}

        if not self._sessions.are_needed:
            return await self._reply(request, lambda: {"user": "", **self._facts()})
        response = await self._reply(request, work)
        for session_id in session_ids:
            response.set_cookie(
                COOKIE,
                session_id,
                max_age=SESSION_S,
                path="/ui",
                secure=self._has_tls,
                httponly=True,
                samesite="strict",
            )
        return response

    def report(self, operation: str) -> Handler:
        async def handle(request: Request) -> Response:
            def work() -> Mapping[str, object]:
                answer = self._calls.answer(operation, None, self._caller(request, self._user(request)))
                return {"data": data_of(answer)}

            return await self._reply(request, work)

        return handle

    async def view(self, request: Request) -> Response:
        return await self._endpoint(request, VIEWS)

    async def call(self, request: Request) -> Response:
        return await self._endpoint(request, TABLE)

    async def _endpoint(self, request: Request, table: Mapping[str, Endpoint]) -> Response:
        endpoint = table.get(request.path_params["path"])
        if endpoint is None:
            raise Refused(HTTPStatus.NOT_FOUND, f"there is no {request.url.path}")
        users: list[str] = []

        def look_up() -> Mapping[str, object]:
            users.append(self._user(request))
            return {}

        refusal = await self._reply(request, look_up)
        if not users:
            refusal.headers["connection"] = "close"  # the body is not read
            return refusal
        caller = self._caller(request, users[0])
        with self._holding() as holding:
            body = await self._entrance.body(request, holding)
            return await self._reply(request, lambda: answer_of(endpoint, Session(self._calls, caller), body))

    def _user(self, request: Request) -> str:
        return self._sessions.user_of(request.cookies.get(COOKIE, ""))

    def _caller(self, request: Request, user: str) -> Caller:
        address = request.client.host if request.client else ""
        return Caller(client=address, time_left_s=TIMEOUT_DEFAULT_S, user=user, origin=address)

    async def _reply(self, request: Request, work: Callable[[], Mapping[str, object]]) -> Response:
        """Errors have HTTP statuses of their own: the pages distinguish them from data by that."""

        def answered() -> Reply:
            return reply_of(request.url.path, lambda: {"code": 0, **work()}, new_trace(), strict=True)

        return response_of(await in_thread(self._workers, request.scope, answered))
