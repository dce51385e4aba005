"""The REST API without HTTP: a path, headers and a body in, a status and a body out.

Called in a thread of the pool that also answers gRPC, one call for each request.
"""

from __future__ import annotations

import base64
from collections.abc import Callable, Mapping
from http import HTTPStatus
from typing import NamedTuple

import structlog
from msgspec.structs import replace

from elanus.core.errors import AccessRefused, ElanusError, Internal, InvalidParameter
from elanus.core.limits import WRITE_ID_LENGTH_MAX
from elanus.proxy.access.caller import Caller
from elanus.proxy.calls import Calls
from elanus.proxy.rest.endpoint import Answer, Endpoint, Session
from elanus.proxy.rest.errors import BadFormat, RestError, access_status, http_status, reported
from elanus.proxy.rest.reading import read
from elanus.proxy.rest.table import TABLE
from elanus.proxy.rest.values import Integers, encoded
from elanus.proxy.wire.unsupported import IDEMPOTENCY_KEY
from elanus.rpc.tracing import end_trace, new_trace, set_trace, trace_id, trace_of

_log = structlog.get_logger(__name__)

TIMEOUT_DEFAULT_S = 30.0
"""The reference's: how long a read waits, unless the client says it."""
_TIMEOUT_MAX_S = 86_400.0
PROBLEM = "application/problem+json"
"""A client that accepts this type gets the HTTP statuses of errors."""


class Reply(NamedTuple):
    """``body``: JSON."""

    status: HTTPStatus
    body: bytes


class RestFront:
    """Answers requests to endpoints. Safe to call from any thread.

    ``strict``: errors have HTTP statuses of their own for all clients. ``calls``: the operations behind it.
    """

    def __init__(self, calls: Calls, *, strict: bool) -> None:
        self.calls = calls
        self._strict = strict

    def answer(
        self,
        path: str,
        headers: Mapping[str, str],
        body: bytes,
        client: str,
        table: Mapping[str, Endpoint] = TABLE,
        success: int = 0,
    ) -> Reply:
        """Answer a request to the endpoint at ``path``; the names of ``headers`` are in lower case.

        ``table``, ``success``: the endpoints of an API generation, and its code of success. Errors are
        answers too: it raises none. Only a path that is no endpoint's is a `KeyError`.
        """
        endpoint = table[path]
        strict = self._strict or PROBLEM in headers.get("accept", "")
        trace = trace_of(headers.items()) or new_trace()

        def work() -> dict[str, object]:
            caller = self._caller(path, headers, client)
            integers = _integers(headers.get("accept-type-allow-int64", ""))
            return {"code": success, **answer_of(endpoint, Session(self.calls, caller, integers), body)}

        return reply_of(path, work, trace, strict=strict)

    def refused(self, path: str, headers: Mapping[str, str], client: str) -> Reply | None:
        """The answer for a caller who has not signed in; None for one who has, or need not."""
        try:
            self._caller(path, headers, client)
        except AccessRefused as error:
            return Reply(access_status(error), refusal(reported(error), strict=True).body)
        except (ElanusError, RestError) as error:
            return refusal(error if isinstance(error, RestError) else reported(error), strict=True)
        return None

    def _caller(self, path: str, headers: Mapping[str, str], client: str) -> Caller:
        """Return who calls. Raises `Unauthenticated`, among others."""
        unknown = Caller(
            database=headers.get("db-name", ""),
            client=client,
            time_left_s=_timeout_s(headers.get("request-timeout", "")),
            trace=trace_id(),
            origin=client,
            idempotency_key=_idempotency_key(headers.get(IDEMPOTENCY_KEY.lower(), "")),
        )
        try:
            found = self.calls.sign_in.identity_of(token_of(headers.get("authorization", "")), client)
        except ElanusError as error:
            self.calls.refuse(path, unknown, error)
            raise
        return replace(unknown, user=found.user, key=found.key)


def _idempotency_key(sent: str) -> str:
    """Raises `InvalidParameter` for a key that is too long, or not of printable ASCII characters."""
    if len(sent) > WRITE_ID_LENGTH_MAX or not (sent.isascii() and sent.isprintable()):
        raise InvalidParameter(
            f"the header {IDEMPOTENCY_KEY} takes at most {WRITE_ID_LENGTH_MAX} printable ASCII characters"
        )
    return sent


def answer_of(endpoint: Endpoint, session: Session, body: bytes) -> Mapping[str, object]:
    """Return the members of an endpoint's answer. Raises `RestError`, among others."""
    found = endpoint.handle(session, read(body, endpoint.body))
    if isinstance(found, Answer):
        return {**found.extra, "data": found.data}
    return {"data": session.integers.applied(found)}


def reply_of(path: str, work: Callable[[], Mapping[str, object]], trace: str, *, strict: bool) -> Reply:
    """Do the work of a request under a trace, and return the reply; errors are replies too."""
    token = set_trace(trace)
    try:
        return Reply(HTTPStatus.OK, encoded(work()))
    except RestError as error:
        return refusal(error, strict=strict)
    except AccessRefused as error:
        return Reply(access_status(error), refusal(reported(error), strict=True).body)
    except ElanusError as error:
        return refusal(reported(error), strict=strict)
    except Exception as error:  # noqa: BLE001 - a defect: logged in full, reported in general terms
        _log.error("rest call failed unexpectedly", path=path, error=repr(error), exc_info=True)
        defect = Internal(f"{path} failed inside the server: its log has the details")
        return refusal(reported(defect), strict=strict)
    finally:
        end_trace(token)


def refusal(error: RestError, *, strict: bool) -> Reply:
    """Return the answer that reports an error."""
    status = http_status(error.code) if strict else HTTPStatus.OK
    return Reply(status, encoded({"code": error.code, "message": error.message}))


def token_of(authorization: str) -> str:
    """Return the token of the header ``Authorization``: ``user:password`` or an API key, "" if there is none.

    Raises `BadFormat` for ``Basic`` credentials that are no base64.
    """
    scheme, _, value = authorization.strip().partition(" ")
    value = value.strip()
    if scheme.lower() == "basic":
        try:
            return base64.b64decode(value, validate=True).decode()
        except ValueError:  # of base64, and of UTF-8
            raise BadFormat("the header Authorization is not the base64 of user:password") from None
    return value if scheme.lower() == "bearer" else ""


def _timeout_s(text: str) -> float:
    if not text:
        return TIMEOUT_DEFAULT_S
    try:
        timeout_s = float(text)
    except ValueError:
        timeout_s = 0.0
    if not 0 < timeout_s <= _TIMEOUT_MAX_S:
        raise BadFormat(f"the header Request-Timeout [{text[:100]}] is not a number of seconds")
    return timeout_s


def _integers(text: str) -> Integers:
    try:
        return Integers(text.strip().lower())
    except ValueError:
        raise BadFormat(
            f"the header Accept-Type-Allow-Int64 [{text[:100]}] is invalid, should be true or false"
        ) from None
