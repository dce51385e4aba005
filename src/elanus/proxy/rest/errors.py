"""The errors of REST answers: a code and a text in the body, and an HTTP status for clients that want one.

The body is ``{"code": ..., "message": ...}``, and the HTTP status is 200 unless the strict mode is chosen:
the reference does so, and programs written for it read ``code``. Errors of the transport (an unknown path, a
body that is too large) have their HTTP status in both modes.
"""

from __future__ import annotations

from http import HTTPStatus

from elanus.core.errors import AccessRefused, ElanusError, Unauthenticated
from elanus.proxy.wire.status import status_of

NOT_AUTHENTICATED = 1800
BAD_FORMAT = 1801
MISSING_PARAMETER = 1802
BAD_ROWS = 1804
BAD_KEY = 1806

_STATUS_BY_CODE = {
    2: HTTPStatus.SERVICE_UNAVAILABLE,
    1: HTTPStatus.SERVICE_UNAVAILABLE,
    3: HTTPStatus.SERVICE_UNAVAILABLE,
    4: HTTPStatus.SERVICE_UNAVAILABLE,
    5: HTTPStatus.INTERNAL_SERVER_ERROR,
    7: HTTPStatus.INSUFFICIENT_STORAGE,
    8: HTTPStatus.TOO_MANY_REQUESTS,
    100: HTTPStatus.NOT_FOUND,
    200: HTTPStatus.NOT_FOUND,
    300: HTTPStatus.NOT_FOUND,
    600: HTTPStatus.NOT_FOUND,
    700: HTTPStatus.NOT_FOUND,
    800: HTTPStatus.NOT_FOUND,
    1400: HTTPStatus.UNAUTHORIZED,
    1401: HTTPStatus.FORBIDDEN,
    1600: HTTPStatus.NOT_FOUND,
    1700: HTTPStatus.NOT_FOUND,
    NOT_AUTHENTICATED: HTTPStatus.UNAUTHORIZED,
}


class RestError(Exception):
    """An answer that reports an error. ``code``: that of the reference."""

    def __init__(self, code: int, message: str) -> None:
        super().__init__(message)
        self.code = code
        self.message = message


class BadFormat(RestError):
    """A body that is no JSON object, or has a field of another type than the endpoint's."""

    def __init__(self, why: str) -> None:
        super().__init__(BAD_FORMAT, f"can only accept json format request, error: {why}")


class MissingField(RestError):
    """A required field that is missing or empty. ``name``: as in the JSON body."""

    def __init__(self, body: str, name: str) -> None:
        name = name[:1].upper() + name[1:]
        super().__init__(
            MISSING_PARAMETER,
            f"missing required parameters, error: Key: '{body}.{name}' "
            f"Error:Field validation for '{name}' failed on the 'required' tag",
        )


def reported(error: ElanusError) -> RestError:
    """Return the error with the code and the text that a gRPC client gets."""
    status = status_of(error)
    return RestError(status.code, status.reason)


def access_status(error: AccessRefused) -> HTTPStatus:
    """Return the HTTP status for a caller that is refused, in every mode: programs must not take it for an
    answer."""
    return HTTPStatus.UNAUTHORIZED if isinstance(error, Unauthenticated) else HTTPStatus.FORBIDDEN


def http_status(code: int) -> HTTPStatus:
    """Return the HTTP status of an error's code, for the strict mode."""
    return _STATUS_BY_CODE.get(code, HTTPStatus.BAD_REQUEST)
