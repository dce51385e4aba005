"""The caller of an operation, and the record of a call that has ended."""

from __future__ import annotations

from msgspec import Struct

from elanus.core.explanation import Explanation
from elanus.proxy.access.permission import Permission


class Caller(Struct, frozen=True, kw_only=True, gc=False):
    """The caller of an operation.

    ``database``: the one that the connection chose, "" if none; a request may name another. ``client``: the
    identity of the client program, the same in all its calls. ``time_left_s``: when the call arrived; None if
    the client waits without end. ``trace``: the id that the client sent, "" if none. ``user``: who signed in
    (`elanus.proxy.access.sign_in`), "" in a server without users. ``key``: the id of the API key by which it
    did, "" for a password. ``origin``: the address that the call came from.
    ``idempotency_key``: what the client calls the request, to have a repeated one known; "" if it does not.
    ``explain``: gets the explanation of the call, if it is a read; None if the client wants none. A
    `Struct`, because one is made per call and a frozen dataclass takes a microsecond more.
    """

    database: str = ""
    client: str = ""
    time_left_s: float | None = None
    trace: str = ""
    user: str = ""
    key: str = ""
    origin: str = ""
    idempotency_key: str = ""
    explain: list[Explanation] | None = None


class FinishedCall(Struct, frozen=True, gc=False):
    """A call that was answered or refused, for metrics, the audit log and the log of slow reads.

    ``database``, ``objects``: what the request names; empty if the call ended before that was read. ``code``:
    the status code, 0 for success. ``trace``: the caller's trace id, or a new one if it sent none.
    ``refused``: by sign-in or by the guard. A `Struct` for the reason that `Caller` is one.
    """

    operation: str
    caller: Caller
    permission: Permission
    database: str = ""
    objects: tuple[str, ...] = ()
    code: int = 0
    seconds: float = 0.0
    trace: str = ""
    refused: bool = False
