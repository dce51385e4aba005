"""The REST API over the fake verbs, called without HTTP: what comes in and goes out is JSON."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from typing import Any

from fake_verbs import FakeVerbs
from wire_calls import observe_nothing

from elanus.proxy.access.guard import AllowAll, Guard
from elanus.proxy.access.sign_in import SignIn
from elanus.proxy.calls import Calls, Observer
from elanus.proxy.rest.front import RestFront
from elanus.proxy.rest.operations import rest_operations
from elanus.proxy.wire.families import milvus_families
from elanus.proxy.wire.operations import milvus_operations

Post = Callable[..., dict[str, Any]]


def rest_front(
    verbs: FakeVerbs,
    guard: Guard | None = None,
    observe: Observer = observe_nothing,
    sign_in: SignIn | None = None,
    *,
    strict: bool = False,
) -> RestFront:
    rpcs = milvus_operations(milvus_families(verbs, "STANDALONE"))
    calls = Calls((*rpcs, *rest_operations(verbs)), guard or AllowAll(), observe, sign_in)
    return RestFront(calls, strict=strict)


class RestClient:
    """``status``: of the last answer."""

    def __init__(self, front: RestFront) -> None:
        self.front = front
        self.status = 0

    def post(self, path: str, headers: Mapping[str, str] | None = None, /, **body: Any) -> dict[str, Any]:
        return self.send(path, json.dumps(body).encode(), headers)

    def send(self, path: str, body: bytes, headers: Mapping[str, str] | None = None) -> dict[str, Any]:
        reply = self.front.answer(path, headers or {}, body, "here")
        self.status = int(reply.status)
        answer: dict[str, Any] = json.loads(reply.body)
        return answer

    def data(self, path: str, headers: Mapping[str, str] | None = None, /, **body: Any) -> Any:
        """The data of an answer that must be a success."""
        answer = self.post(path, headers, **body)
        assert answer["code"] == 0, answer
        return answer["data"]
