"""Endpoints, and what their functions work with.

An endpoint's function takes a `Session` and the body, and returns the ``data`` of the answer, or an `Answer`
that has more than ``data``. Most endpoints fill the fields of one RPC with those of the body and pick some of
the response's: `rpc_endpoint` makes them.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

from msgspec import structs

from elanus.core.errors import AccessRefused, ElanusError
from elanus.core.explanation import Explanation
from elanus.proxy.access.caller import Caller
from elanus.proxy.calls import Calls
from elanus.proxy.rest.bodies import Body
from elanus.proxy.rest.errors import RestError, reported
from elanus.proxy.rest.values import Integers
from elanus.proxy.wire.by_name import RpcFailed, call_rpc, takes


class Session:
    """One request: who sends it, and the operations that it may call.

    ``integers``: how the client reads 64-bit integers.
    """

    def __init__(self, calls: Calls, caller: Caller, integers: Integers = Integers.QUOTED_IF_LARGE) -> None:
        self._calls = calls
        self.caller = caller
        self.integers = integers
        self.explanations: list[Explanation] = []
        """Those of the reads, if the body asks for them."""

    def rpc(self, name: str, body: Body | None = None, /, **fields: Any) -> Any:
        """Call an RPC and return its response. It gets the fields of the body that it has, and ``fields``.

        Raises `RestError`, and `AccessRefused`.
        """
        filled = {} if body is None else _shared(name, body)
        try:
            return call_rpc(self._calls, name, filled | fields, self.caller)
        except RpcFailed as failed:
            raise RestError(failed.code, failed.message) from None
        except AccessRefused:
            raise
        except ElanusError as error:
            raise reported(error) from None

    def operation(self, name: str, body: Body) -> Any:
        """Call an operation of the REST API's own and return its answer. Raises `RestError`."""
        caller = self.caller
        if getattr(body, "explain", False):
            caller = structs.replace(caller, explain=self.explanations)
        answer = self._calls.answer(name, body, caller)
        if isinstance(answer, RestError):
            raise answer
        return answer


def _shared(rpc: str, body: Body) -> dict[str, Any]:
    """The fields of a body that the RPC's request has, too; those with their defaults are left out."""
    return {
        info.name: value
        for info in structs.fields(body)
        if (value := getattr(body, info.name)) not in ("", 0, False, [], {}, None) and takes(rpc, info.name)
    }


@dataclass(frozen=True, slots=True)
class Answer:
    """An answer with more members than ``data``."""

    data: object
    extra: Mapping[str, object] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Endpoint:
    """``path``: below ``/v2/vectordb/``. ``operations``: the names of those that it calls. ``body``: the form
    of the request's body. ``handle`` raises `RestError`."""

    path: str
    body: type[Body]
    handle: Callable[[Session, Any], object]
    operations: tuple[str, ...]
    summary: str


def endpoint(
    path: str,
    body: type[Body],
    handle: Callable[[Session, Any], object],
    *operations: str,
) -> Endpoint:
    """An endpoint whose summary is the first line of its function's docstring."""
    return Endpoint(path, body, handle, operations, (handle.__doc__ or "").strip().split("\n")[0])


def nothing(response: Any) -> object:
    """The ``data`` of an endpoint that only succeeds or fails."""
    return {}


def rpc_endpoint(
    path: str,
    body: type[Body],
    rpc: str,
    summary: str,
    data: Callable[[Any], object] = nothing,
    fields: Callable[[Any], Mapping[str, Any]] | None = None,
) -> Endpoint:
    """An endpoint that is one RPC. ``fields``: request fields in addition to those that body and RPC share.
    ``data``: that of the answer, from the response."""

    def handle(session: Session, sent: Body) -> object:
        return data(session.rpc(rpc, sent, **(fields(sent) if fields is not None else {})))

    return Endpoint(path, body, handle, (rpc,), summary)
