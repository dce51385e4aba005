"""The HTTP port for Prometheus, health checks and `elanus status`.

::

    GET  /metrics                 Prometheus text format
    GET  /healthz                 200 when every role serves or stands by, else 503; JSON with their states
    GET  /readyz                  200 when every role serves, else 503; the same JSON
    GET  /status                  JSON, everything that `elanus status` shows
    GET  /jobs                    JSON, the job ledger
    GET  /jobs/{id}               JSON, one job
    GET  /slow                    JSON, the slow log: the last slow requests, each with its explanation
    POST /jobs/{id}/cancel        end a running job; loopback only
    POST /roles/{role}/restart    restart one role inside the process; loopback only
    GET  /gc                      JSON, garbage collection: the current round, and the last one
    POST /gc/run                  start a round; loopback only
    POST /gc/dry-run              the same, without deleting anything

It is separate from the Milvus port, so that neither a flood of searches nor a hung role keeps it
from answering. It is the standard library's WSGI server with a thread per request: a few requests per
minute do not justify a framework's memory.

Requests that change the server (restart a role, cancel a job, collect garbage) are accepted only from
this machine and only with the header ``X-Elanus-Request``: a web page that the user happens to have open
can make the browser post to loopback, but not with a custom header. A page whose own name resolves to
loopback could; so requests from this machine must call it by an address, or by a name of this machine.
"""

from __future__ import annotations

import contextlib
import errno
import ipaddress
import re
import socket
import threading
import time
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from http import HTTPStatus
from socketserver import TCPServer, ThreadingMixIn
from typing import TYPE_CHECKING, Any, Protocol
from wsgiref.simple_server import WSGIRequestHandler, WSGIServer, make_server

import msgspec
import structlog
from prometheus_client import CollectorRegistry, make_wsgi_app

from elanus.api.gc import GcStatus
from elanus.core.errors import ElanusError, InvalidParameter, JobNotFound, NotCancellable
from elanus.core.slow_requests import SlowRequest
from elanus.rpc.origins import host_of, is_local_name, place_of
from elanus.server.settings import MetricsSettings
from elanus.server.startup import PortTaken
from elanus.server.status import REQUEST_HEADER, JobStatus, RoleStatus, Status

if TYPE_CHECKING:
    from wsgiref.types import StartResponse, WSGIApplication, WSGIEnvironment

log = structlog.get_logger(__name__)

_Answer = tuple[HTTPStatus, object]
_OPEN = frozenset({"/healthz", "/readyz"})
_WAKE_S = 5.0
CONNECTIONS_MAX = 64
"""At a time: they take threads and open files, of which the server needs its own. A further one takes the
place of the oldest whose request has not arrived, so nobody keeps health checks out by being slow."""
REQUEST_WAIT_S = 10.0
"""How long a connection may be silent before its request is complete."""
_NO_FILES_S = 0.2
_PLACE_WAIT_S = 1.0
_RESTART = re.compile(r"/roles/([a-z0-9-]+)/restart")
_CANCEL = re.compile(r"/jobs/([\w-]+)/cancel")
_GC = re.compile(r"/gc/(run|dry-run)")
_JOB = re.compile(r"/jobs/([\w-]+)")


@dataclass(frozen=True, slots=True)
class Health:
    """``serving``: every role of the process answers requests; ``alive``: every role answers or stands by."""

    serving: bool
    alive: bool
    roles: Sequence[RoleStatus]


class Observed(Protocol):
    """The part of the server that this port may read and change. Called from the port's own threads."""

    def health(self) -> Health: ...

    def status(self) -> Status: ...

    def restart_role(self, role: str) -> None:
        """Restart a role; returns when it serves again. Raises `InvalidParameter` for an unknown role."""
        ...

    def jobs(self) -> Sequence[JobStatus]: ...

    def job(self, job_id: str) -> JobStatus:
        """Raises `JobNotFound`."""
        ...

    def slow_requests(self) -> Sequence[SlowRequest]: ...

    def garbage(self) -> GcStatus: ...

    def collect_garbage(self, *, delete: bool) -> None:
        """Start a round; `garbage` reports its progress."""
        ...

    def cancel_job(self, job_id: str) -> None:
        """Cancel a job; returns when it has ended. Raises `JobNotFound` and `NotCancellable`."""
        ...


class ObservePort:
    """The HTTP port, open from construction until `close`.

    ``guarded``: the server has users. The port has none, so only programs of this machine get more than
    health and metrics. Raises `PortTaken`.
    """

    def __init__(
        self,
        settings: MetricsSettings,
        registry: CollectorRegistry,
        observed: Observed,
        *,
        guarded: bool = False,
    ) -> None:
        self._observed = observed
        self._guarded = guarded
        self._metrics: WSGIApplication = make_wsgi_app(registry)
        server_class = _ServerV6 if ":" in settings.host else _Server
        try:
            self._server = make_server(
                settings.host, settings.port, self._answer, server_class, handler_class=_QuietHandler
            )
        except OSError as error:
            raise PortTaken(
                f"the metrics port {settings.host}:{settings.port} cannot be opened: {error.strerror}; "
                "choose another with --set metrics.port=PORT (0: any free one)"
            ) from None
        host = f"[{settings.host}]" if ":" in settings.host else settings.host
        self.url = f"http://{host}:{self._server.server_port}"
        self._thread = threading.Thread(target=self._serve, name="observe", daemon=True)
        self._thread.start()

    def close(self) -> None:
        """Stop answering. Does not wait for requests in progress."""
        self._server.closing = True
        # The thread is waiting for a connection: this one wakes it up.
        with contextlib.suppress(OSError), socket.socket(self._server.address_family) as wake:
            wake.settimeout(_WAKE_S)
            wake.connect(self._server.server_address)
        self._thread.join(_WAKE_S)
        self._server.server_close()

    def _serve(self) -> None:
        """Serve until closed. Unlike ``serve_forever``, this wakes up only for connections."""
        while not self._server.closing:
            self._server.handle_request()

    def _answer(self, environ: WSGIEnvironment, start_response: StartResponse) -> Iterable[bytes]:
        method, path = environ["REQUEST_METHOD"], environ["PATH_INFO"]
        if method == "GET" and path == "/metrics":
            return self._metrics(environ, start_response)
        try:
            refusal = None if path in _OPEN else _refusal_of_page(environ)
            status, body = refusal or self._route(method, path, environ)
        except ElanusError as error:
            status, body = _status_of(error), {"error": error.message}
        except Exception as error:
            log.exception("request of the metrics port failed", method=method, path=path)
            status, body = HTTPStatus.INTERNAL_SERVER_ERROR, {"error": f"{type(error).__name__}: {error}"}
        payload = msgspec.json.encode(body)
        headers = [("Content-Type", "application/json"), ("Content-Length", str(len(payload)))]
        start_response(f"{status.value} {status.phrase}", headers)
        return [payload]

    def _route(self, method: str, path: str, environ: WSGIEnvironment) -> _Answer:
        if restart := _RESTART.fullmatch(path):
            role = restart[1]
            return self._change(
                lambda: self._observed.restart_role(role), {"restarted": role}, method, environ
            )
        if cancel := _CANCEL.fullmatch(path):
            job_id = cancel[1]
            return self._change(
                lambda: self._observed.cancel_job(job_id), {"cancelled": job_id}, method, environ
            )
        if collect := _GC.fullmatch(path):
            delete = collect[1] == "run"
            return self._change(
                lambda: self._observed.collect_garbage(delete=delete), {"begun": collect[1]}, method, environ
            )
        answers: dict[str, Callable[[], _Answer]] = {
            "/healthz": self._healthz,
            "/readyz": self._readyz,
            "/status": lambda: (HTTPStatus.OK, self._observed.status()),
            "/jobs": lambda: (HTTPStatus.OK, self._observed.jobs()),
            "/slow": lambda: (HTTPStatus.OK, self._observed.slow_requests()),
            "/gc": lambda: (HTTPStatus.OK, self._observed.garbage()),
        }
        if job := _JOB.fullmatch(path):
            job_id = job[1]
            answers[path] = lambda: (HTTPStatus.OK, self._observed.job(job_id))
        if path not in answers:
            return HTTPStatus.NOT_FOUND, {
                "error": "there are /metrics, /healthz, /readyz, /status, /jobs, /gc"
            }
        if method != "GET":
            return HTTPStatus.METHOD_NOT_ALLOWED, {"error": f"{path} answers GET"}
        if self._guarded and path not in _OPEN and not _is_local(environ):
            return HTTPStatus.FORBIDDEN, {"error": f"{path} answers only this machine: the server has users"}
        return answers[path]()

    def _healthz(self) -> _Answer:
        health = self._observed.health()
        return HTTPStatus.OK if health.alive else HTTPStatus.SERVICE_UNAVAILABLE, health

    def _readyz(self) -> _Answer:
        health = self._observed.health()
        return HTTPStatus.OK if health.serving else HTTPStatus.SERVICE_UNAVAILABLE, health

    def _change(
        self, change: Callable[[], None], done: object, method: str, environ: WSGIEnvironment
    ) -> _Answer:
        if method != "POST":
            return HTTPStatus.METHOD_NOT_ALLOWED, {"error": "what changes the server is a POST"}
        header = "HTTP_" + REQUEST_HEADER.upper().replace("-", "_")
        if not _is_local(environ) or header not in environ:
            return HTTPStatus.FORBIDDEN, {
                "error": f"only from this machine, with the header {REQUEST_HEADER}"
            }
        change()
        return HTTPStatus.OK, done


def _is_local(environ: WSGIEnvironment) -> bool:
    return ipaddress.ip_address(environ["REMOTE_ADDR"]).is_loopback


def _refusal_of_page(environ: WSGIEnvironment) -> _Answer | None:
    """Return the refusal of a request that a browser of this machine makes for a page of another name."""
    host, origin = environ.get("HTTP_HOST", ""), environ.get("HTTP_ORIGIN")
    if _is_local(environ) and not _is_of_this_machine(host_of(host)):
        return HTTPStatus.FORBIDDEN, {
            "error": f"from this machine the port is called as localhost, not as {host[:100]}"
        }
    if origin is not None and place_of(origin) != host.lower():
        return HTTPStatus.FORBIDDEN, {"error": f"pages of {origin[:100]} may not call this server"}
    return None


def _is_of_this_machine(host: str) -> bool:
    """Whether no page of others can have this host: it is an address, or this machine's name."""
    if is_local_name(host) or host == socket.gethostname().lower():
        return True
    with contextlib.suppress(ValueError):
        return bool(ipaddress.ip_address(host))
    return False


def _status_of(error: ElanusError) -> HTTPStatus:
    if isinstance(error, InvalidParameter | JobNotFound):
        return HTTPStatus.NOT_FOUND
    if isinstance(error, NotCancellable):
        return HTTPStatus.CONFLICT
    return HTTPStatus.SERVICE_UNAVAILABLE


class _Server(ThreadingMixIn, WSGIServer):
    daemon_threads = True
    # a status request that hangs must not keep the server from stopping
    block_on_close = False
    closing = False
    request_queue_size = CONNECTIONS_MAX

    def __init__(self, *args: Any, **more: Any) -> None:
        self._places = threading.BoundedSemaphore(CONNECTIONS_MAX)
        self._arriving: dict[socket.socket, None] = {}
        """The connections whose requests have not arrived, the oldest first."""
        self._lock = threading.Lock()
        super().__init__(*args, **more)

    def get_request(self) -> tuple[socket.socket, Any]:
        try:
            return super().get_request()
        except OSError as error:
            if error.errno in (errno.EMFILE, errno.ENFILE):
                time.sleep(_NO_FILES_S)  # the connection still waits, and would be tried again at once
            raise

    def verify_request(self, request: Any, client_address: Any) -> bool:
        """Reject the connection that only wakes the server up for closing, and one that finds no place."""
        if self.closing:
            return False
        if self._places.acquire(blocking=False):
            return True
        return self._end_oldest() and self._places.acquire(timeout=_PLACE_WAIT_S)

    def _end_oldest(self) -> bool:
        """End the oldest connection whose request has not arrived: its thread then gives up its place.

        Returns whether there is one."""
        with self._lock:
            oldest = next(iter(self._arriving), None)
            if oldest is None:
                return False
            del self._arriving[oldest]
        with contextlib.suppress(OSError):  # it has just ended by itself
            oldest.shutdown(socket.SHUT_RDWR)
        return True

    def has_arrived(self, request: socket.socket) -> bool:
        """The head of a request is complete. Returns whether the connection had not been ended before."""
        with self._lock:
            return self._arriving.pop(request, self) is None

    def process_request(self, request: Any, client_address: Any) -> None:
        with self._lock:
            self._arriving[request] = None
        try:
            super().process_request(request, client_address)
        except Exception:  # no thread could be started
            self._leave(request)
            raise

    def process_request_thread(self, request: Any, client_address: Any) -> None:
        try:
            super().process_request_thread(request, client_address)
        finally:
            self._leave(request)

    def _leave(self, request: socket.socket) -> None:
        with self._lock:
            self._arriving.pop(request, None)
        self._places.release()

    def server_bind(self) -> None:
        """Bind without the base class's lookup of the host's full name, which may take seconds."""
        TCPServer.server_bind(self)
        self.server_name, self.server_port = str(self.server_address[0]), int(self.server_address[1])
        self.setup_environ()


class _ServerV6(_Server):
    address_family = socket.AF_INET6


class _QuietHandler(WSGIRequestHandler):
    timeout = REQUEST_WAIT_S
    server: _Server

    def handle(self) -> None:
        with contextlib.suppress(TimeoutError, ConnectionError):  # nothing came, or the connection was ended
            super().handle()

    def parse_request(self) -> bool:
        return super().parse_request() and self.server.has_arrived(self.connection)

    def log_message(self, format: str, *args: Any) -> None:  # noqa: A002 - the base class's name
        """Do not log requests: a scrape every few seconds would drown the messages that matter."""
