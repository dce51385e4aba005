"""One request to a provider over HTTP: bounded in time and size, repeated where that may help.

Redirects are not followed: another host would get the key. An error shows what the provider says is wrong,
never a header and never the key.
"""

from __future__ import annotations

import http.client
import time
import urllib.error
import urllib.request
from collections.abc import Callable
from typing import Any
from urllib.parse import urlsplit

import msgspec

from elanus.core.errors import FunctionFailed
from elanus.proxy.embedding.formats import Request
from elanus.proxy.embedding.time_limit import HANDLERS, LimitedRequest, TimeLimit

TRIES = 3
_PAUSE_S = 0.5
_ANSWER_BYTES_MAX = 256 * 1024 * 1024
_PIECE_BYTES = 1024 * 1024
_SAID_CHARS = 300
_TOO_MANY, _SERVER_ERRORS = 429, 500


class _NoRedirects(urllib.request.HTTPRedirectHandler):
    def redirect_request(self, *_args: Any, **_kwargs: Any) -> None:
        """Return None: the answer is an error with the status of the redirect."""


_opener = urllib.request.build_opener(_NoRedirects, *HANDLERS)


def post(
    request: Request,
    deadline_s: float,
    now_s: Callable[[], float] = time.monotonic,
    sleep: Callable[[float], None] = time.sleep,
) -> bytes:
    """Return the body of the answer. ``deadline_s``: the last moment, by ``now_s``.

    A refused connection, the statuses 429 and 5xx are tried `TRIES` times, with growing pauses.
    Raises `FunctionFailed`.
    """
    for attempt in range(TRIES):
        try:
            return _sent(request, deadline_s, now_s)
        except _MayHelp as error:
            pause_s = _PAUSE_S * 2**attempt
            if attempt == TRIES - 1 or now_s() + pause_s >= deadline_s:
                raise FunctionFailed(error.text) from None
            sleep(pause_s)
    raise AssertionError("the last try returns or raises")


class _MayHelp(Exception):
    """Another try may succeed."""

    def __init__(self, text: str) -> None:
        super().__init__(text)
        self.text = text


def _sent(request: Request, deadline_s: float, now_s: Callable[[], float]) -> bytes:
    host = urlsplit(request.url).netloc
    left_s = deadline_s - now_s()
    if left_s <= 0:
        raise _late(host)
    with TimeLimit(left_s) as limit:
        message = LimitedRequest(request.url, request.body, dict(request.headers), limit)
        try:
            body = _answer(message, left_s, host, lambda: now_s() > deadline_s)
        except (_MayHelp, FunctionFailed):
            if limit.is_over:
                raise _late(host) from None
            raise
        if limit.is_over:
            raise _late(host)
        return body


def _answer(message: LimitedRequest, timeout_s: float, host: str, is_late: Callable[[], bool]) -> bytes:
    try:
        with _opener.open(message, timeout=timeout_s) as answer:
            return _read(answer, host, is_late)
    except urllib.error.HTTPError as error:
        with error:
            text = f"Call service failed, errs:[{error.code} {error.reason}, {_said(error)}]: {host}"
        if error.code == _TOO_MANY or error.code >= _SERVER_ERRORS:
            raise _MayHelp(text) from None
        raise FunctionFailed(text) from None
    except TimeoutError:
        raise _late(host) from None
    except (OSError, http.client.HTTPException) as error:
        reason = getattr(error, "reason", error)
        if isinstance(reason, TimeoutError):
            raise _late(host) from None
        raise _MayHelp(f"Call service failed, errs:[{reason}]: {host}") from None
    except ValueError as error:  # a host or a path that HTTP cannot carry
        raise FunctionFailed(f"Call service failed, errs:[{error}]: {host}") from None


def _late(host: str) -> FunctionFailed:
    return FunctionFailed(f"Call service failed, {host} did not answer in time (function.timeout_s)")


def _read(answer: Any, host: str, is_late: Callable[[], bool]) -> bytes:
    """Read in pieces, of which a large answer has many."""
    pieces, size = [], 0
    while piece := answer.read1(_PIECE_BYTES):
        pieces.append(piece)
        size += len(piece)
        if size > _ANSWER_BYTES_MAX:
            raise FunctionFailed(f"Call service failed, {host} sent more than {_ANSWER_BYTES_MAX} bytes")
        if is_late():
            raise _late(host)
    return b"".join(pieces)


def _said(error: urllib.error.HTTPError) -> str:
    """Return what the provider says is wrong; "" if its answer has no such text.

    Other content is not shown: a function may name an address of something that is no provider.
    """
    try:
        body = msgspec.json.decode(error.read(_PIECE_BYTES))
    except (msgspec.MsgspecError, OSError, http.client.HTTPException):
        return ""
    for name in ("error", "message", "detail"):
        said = body.get(name) if isinstance(body, dict) else None
        if isinstance(said, dict):
            said = said.get("message")
        if isinstance(said, str):
            return said[:_SAID_CHARS]
    return ""
