"""How an answer is sent: a large one in pieces, each when the client has read most of those before it.

Until then it is counted among the answers that wait. A client that reads nothing for ``READ_WAIT_S`` loses
its connection: it would keep the answer in memory for as long as it likes.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, MutableMapping
from http import HTTPStatus
from typing import Any

from starlette.types import Receive, Scope, Send

from elanus.core.errors import Unavailable
from elanus.proxy.rest.entrance import error_reply, response_of
from elanus.proxy.rest.front import Reply
from elanus.rpc.serving.held import SMALL_MAX_BYTES, HeldAnswers

READ_WAIT_S = 60.0
"""How long a client may take to read a piece."""
PIECE_BYTES = 256 * 1024
_KEY = "elanus.close"


def closes(scope: MutableMapping[str, Any], close: Callable[[], None]) -> None:
    """Have ``close`` end the connection of the request with this scope, if its client does not read."""
    scope[_KEY] = close


class SentReply:
    """Sends a reply. Implements an ASGI application.

    ``answers``: counts large ones while they are sent. ``may_withhold``: it answers a read, and is replaced
    by an error if it is too large next to those that wait.
    """

    def __init__(self, reply: Reply, answers: HeldAnswers, *, may_withhold: bool) -> None:
        self._reply = reply
        self._answers = answers
        self._may_withhold = may_withhold

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        size_bytes = len(self._reply.body)
        if size_bytes <= SMALL_MAX_BYTES:
            await response_of(self._reply)(scope, receive, send)
        elif self._answers.add(size_bytes, may_withhold=self._may_withhold):
            try:
                await self._send_pieces(scope, send)
            finally:
                self._answers.remove(size_bytes)
        else:
            text = self._answers.refusal()
            refusal = error_reply(HTTPStatus.SERVICE_UNAVAILABLE, text, Unavailable.code)
            await response_of(refusal)(scope, receive, send)

    async def _send_pieces(self, scope: Scope, send: Send) -> None:
        body = self._reply.body
        headers = response_of(self._reply).raw_headers
        await send({"type": "http.response.start", "status": self._reply.status, "headers": headers})
        for start in range(0, len(body), PIECE_BYTES):
            end = start + PIECE_BYTES
            piece = {"type": "http.response.body", "body": body[start:end], "more_body": end < len(body)}
            try:
                async with asyncio.timeout(READ_WAIT_S):
                    await send(piece)
            except TimeoutError:
                scope[_KEY]()
                await send(piece)  # returns when the connection is gone
                return
