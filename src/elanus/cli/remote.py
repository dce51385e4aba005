"""Requests to a running server over its HTTP port."""

from __future__ import annotations

import http.client
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
    return _ask(url, TIMEOUT_S)


def restart_role(base_url: str, role: str) -> None:
    """Restart a role and wait until it serves again. Raises `NoAnswer`."""
    _ask(f"{base_url}/roles/{role}/restart", CHANGE_TIMEOUT_S, changes=True)


def cancel_job(base_url: str, job_id: str) -> None:
    """Cancel a job and wait until it has ended. Raises `NoAnswer`."""
    _ask(f"{base_url}/jobs/{job_id}/cancel", CHANGE_TIMEOUT_S, changes=True)


def collect_garbage(base_url: str, *, dry: bool) -> None:
    """Start a round of garbage collection. Raises `NoAnswer`."""
    _ask(f"{base_url}/gc/{'dry-run' if dry else 'run'}", TIMEOUT_S, changes=True)


def _ask(url: str, timeout_s: float, *, changes: bool = False) -> bytes:
    if not url.startswith(("http://", "https://")):
        raise NoAnswer(f"{url}: an address begins with http:// or https://")
    try:
        request = urllib.request.Request(url)
        if changes:
            request = urllib.request.Request(url, method="POST", headers={REQUEST_HEADER: "cli"})
        with urllib.request.urlopen(request, timeout=timeout_s) as answer:
            body: bytes = answer.read()
            return body
    except urllib.error.HTTPError as error:
        raise NoAnswer(_reason(error) or _foreign(url, error)) from None
    except OSError as error:
        reason = error.reason if isinstance(error, urllib.error.URLError) else error
        raise NoAnswer(f"no server answers at {request.host}: {reason}; is `elanus serve` running?") from None
    except (ValueError, http.client.HTTPException) as error:
        raise NoAnswer(not_http(url, error)) from None


def not_http(url: str, error: Exception) -> str:
    """Say that a URL is none, or that what answers there speaks another protocol."""
    if isinstance(error, ValueError | http.client.InvalidURL):
        return f"{url} is no address of a server: {error}"
    return f"what answers at {url} does not speak HTTP: {error!r}; give another address"


def _foreign(url: str, error: urllib.error.HTTPError) -> str:
    text = f"{url}: {error.code} {error.reason}"
    if error.code != http.HTTPStatus.NOT_FOUND:
        return text
    return (
        f"{text}: that is not the metrics port of a server, but perhaps the one of its REST API and console: "
        "give the address of metrics.port, http://127.0.0.1:9091 by default, or the server's --data-dir"
    )


def _reason(error: urllib.error.HTTPError) -> str:
    """Return the error text that the server sent, or none: something else may answer at that address."""
    try:
        return msgspec.json.decode(error.read(), type=dict[str, str])["error"]
    except (msgspec.DecodeError, KeyError):
        return ""
