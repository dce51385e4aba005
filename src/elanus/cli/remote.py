"""Requests to a running server over its HTTP port."""

from __future__ import annotations

import urllib.error
import urllib.request

import msgspec

from elanus.server.status import REQUEST_HEADER

TIMEOUT_S = 10
CHANGE_TIMEOUT_S = 60


class NoAnswer(Exception):
    """The server does not answer, or refused. The text is for the user."""


def get(url: str) -> bytes:
    """Return the body of a successful answer. Raises `NoAnswer`."""
    return _ask(urllib.request.Request(url), TIMEOUT_S)


def restart_role(base_url: str, role: str) -> None:
    """Restart a role and wait until it serves again. Raises `NoAnswer`."""
    request = urllib.request.Request(
        f"{base_url}/roles/{role}/restart", method="POST", headers={REQUEST_HEADER: "cli"}
    )
    _ask(request, CHANGE_TIMEOUT_S)


def cancel_job(base_url: str, job_id: str) -> None:
    """Cancel a job and wait until it has ended. Raises `NoAnswer`."""
    request = urllib.request.Request(
        f"{base_url}/jobs/{job_id}/cancel", method="POST", headers={REQUEST_HEADER: "cli"}
    )
    _ask(request, CHANGE_TIMEOUT_S)


def collect_garbage(base_url: str, *, dry: bool) -> None:
    """Start a round of garbage collection. Raises `NoAnswer`."""
    what = "dry-run" if dry else "run"
    request = urllib.request.Request(f"{base_url}/gc/{what}", method="POST", headers={REQUEST_HEADER: "cli"})
    _ask(request, TIMEOUT_S)


def _ask(request: urllib.request.Request, timeout_s: float) -> bytes:
    if not request.full_url.startswith(("http://", "https://")):
        raise NoAnswer(f"{request.full_url}: an address begins with http:// or https://")
    try:
        with urllib.request.urlopen(request, timeout=timeout_s) as answer:
            body: bytes = answer.read()
            return body
    except urllib.error.HTTPError as error:
        raise NoAnswer(_reason(error) or f"{request.full_url}: {error.code} {error.reason}") from None
    except OSError as error:
        reason = error.reason if isinstance(error, urllib.error.URLError) else error
        raise NoAnswer(f"no server answers at {request.host}: {reason}; is `elanus serve` running?") from None


def _reason(error: urllib.error.HTTPError) -> str:
    """Return the error text that the server sent, or none: something else may answer at that address."""
    try:
        return msgspec.json.decode(error.read(), type=dict[str, str])["error"]
    except (msgspec.DecodeError, KeyError):
        return ""
