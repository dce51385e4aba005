"""The caller of a gRPC call: what its headers and its deadline say, and who signs in with them.

A call that is refused ends with a gRPC status, as in the reference: clients repeat none of these.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import NoReturn, Protocol

import grpc
from msgspec import structs

from elanus.core.errors import AccessRefused, ElanusError, PermissionDenied
from elanus.core.explanation import Explanation
from elanus.proxy.access.caller import Caller
from elanus.proxy.calls import Calls
from elanus.proxy.wire.unsupported import IDEMPOTENCY_KEY
from elanus.rpc.tracing import trace_of

_DATABASE_HEADER = "dbname"
_IDENTIFIER_HEADER = "identifier"
_TOKEN_HEADER = "authorization"
_EXPLAIN_HEADER = "elanus-explain"
_KEY_HEADER = IDEMPOTENCY_KEY.lower()
_EXPLAIN_FORMS = {"1": (True, True), "json": (True, False), "text": (False, True)}
"""Which forms of an explanation the values of that header ask for: JSON, and text for people."""
ORIGIN_HEADER = "elanus-origin"
"""The address of the client, from a process of this server that passes its call on."""
_LOCAL = "unix:"
"""The beginning of the addresses of such processes. Only this server's user can reach its local sockets."""
_DETAILS_MAX_BYTES = 2048
"""gRPC's clients take 8 kB of headers, in which a byte that is not ASCII takes three."""
_ENDLESS_S = 1e9
"""gRPC's threaded server reports centuries for a call without a deadline."""


class Context(Protocol):
    """The part of a ``grpc.ServicerContext`` that the wire code uses."""

    def invocation_metadata(self) -> Iterable[tuple[str, str | bytes]]:
        """The headers of the request."""

    def peer(self) -> str:
        """The address of the client's connection."""

    def time_remaining(self) -> float | None:
        """Seconds until the client gives up; ``None`` when it set no deadline."""

    def abort(self, code: grpc.StatusCode, details: str) -> NoReturn:
        """End the call with a gRPC error."""


def signed_in(name: str, context: Context, calls: Calls) -> Caller:
    """Return who calls the operation ``name``. Raises `ElanusError` when nobody could be signed in."""
    caller = caller_of(context)
    try:
        return with_user(caller, context, calls)
    except ElanusError as error:
        calls.refuse(name, caller, error)
        raise


def with_user(caller: Caller, context: Context, calls: Calls) -> Caller:
    """Return the caller with the user who signs in. Raises `ElanusError`."""
    if not calls.sign_in.is_required:
        return caller
    token = next((str(v) for key, v in context.invocation_metadata() if key == _TOKEN_HEADER), "")
    found = calls.sign_in.identity_of_header(token, caller.origin)
    return structs.replace(caller, user=found.user, key=found.key)


def end_refused(context: Context, error: ElanusError) -> NoReturn:
    """End a call whose caller may not make it, or could not be signed in."""
    if isinstance(error, PermissionDenied):
        status = grpc.StatusCode.PERMISSION_DENIED
    elif isinstance(error, AccessRefused):
        status = grpc.StatusCode.UNAUTHENTICATED
    else:
        status = grpc.StatusCode.UNAVAILABLE
    context.abort(status, _fit_for_header(error.message))


def _fit_for_header(text: str) -> str:
    """Return a text without its middle, if it is too long for the header that carries it.

    It may have names that the client sent, of any length. A client whose gRPC refuses the header would see
    that error in place of this one.
    """
    half = _DETAILS_MAX_BYTES // 2
    encoded = text.encode()
    if len(encoded) <= 2 * half:
        return text
    begin, end = (part.decode(errors="ignore") for part in (encoded[:half], encoded[-half:]))
    return f"{begin}...{end}"


def caller_of(context: Context) -> Caller:
    """Return who calls, as far as it says so itself: ``user`` is left empty.

    The client is the identifier that it received from Connect if it sends that, else its connection. The
    header ``elanus-explain`` asks for the explanation of a read (`explanation_forms`).
    """
    headers = context.invocation_metadata()
    origin = str(context.peer())
    database = client = idempotency_key = ""
    explain: list[Explanation] | None = None
    for key, value in headers:
        if key == _DATABASE_HEADER:
            database = database or str(value)
        elif key == _IDENTIFIER_HEADER:
            client = client or str(value)
        elif key == ORIGIN_HEADER and origin.startswith(_LOCAL):
            origin = str(value)
        elif key == _KEY_HEADER:
            idempotency_key = str(value)
        elif key == _EXPLAIN_HEADER and value in _EXPLAIN_FORMS:
            explain = []
    left_s = time_left_s(context)
    return Caller(
        database=database,
        client=client or origin,
        time_left_s=left_s,
        trace=trace_of(headers),
        origin=origin,
        idempotency_key=idempotency_key,
        explain=explain,
    )


def explanation_forms(context: Context) -> tuple[bool, bool]:
    """Return whether the caller wants a read's explanation as JSON, and whether as text for people."""
    return next(
        (
            _EXPLAIN_FORMS[str(value)]
            for key, value in context.invocation_metadata()
            if key == _EXPLAIN_HEADER and value in _EXPLAIN_FORMS
        ),
        (False, False),
    )


def time_left_s(context: Context) -> float | None:
    """Seconds until the client gives up; None if it set no deadline."""
    left_s = context.time_remaining()
    return None if left_s is None or left_s > _ENDLESS_S else left_s
