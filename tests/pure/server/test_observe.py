"""The HTTP port, asked over real sockets."""

from __future__ import annotations

import json
import socket
import threading
import urllib.error
import urllib.request
from collections.abc import Iterator
from contextlib import ExitStack
from dataclasses import dataclass, field
from http.client import HTTPResponse
from typing import Any
from unittest.mock import patch
from urllib.parse import urlsplit

import pytest

from elanus.api.gc import GcState, GcStatus
from elanus.core.errors import InvalidParameter, JobNotFound, NotCancellable, NotReady
from elanus.metrics import Metrics
from elanus.server import http_port
from elanus.server.http_port import CONNECTIONS_MAX, Health, ObservePort
from elanus.server.settings import MetricsSettings
from elanus.server.startup import PortTaken
from elanus.server.status import REQUEST_HEADER, JobStatus, PipelineStatus, RoleStatus, Status


@dataclass
class FakeServer:
    serving: bool = True
    not_serving: str = "Initializing"
    broken: bool = False
    restarted: list[str] = field(default_factory=list)

    def health(self) -> Health:
        state = "Healthy" if self.serving else self.not_serving
        return Health(self.serving, self.serving or state == "Standby", [RoleStatus("proxy", state)])

    def status(self) -> Status:
        if self.broken:
            raise RuntimeError("a defect")
        return Status("1.0", 2.5, self.health().roles, [], [], [], PipelineStatus("Healthy", 7, 0))

    def restart_role(self, role: str) -> None:
        if role == "nobody":
            raise InvalidParameter("there is no role nobody")
        if role == "busy":
            raise NotReady("busy is restarting")
        self.restarted.append(role)

    def jobs(self) -> list[JobStatus]:
        return [self.job("flush-1")]

    def job(self, job_id: str) -> JobStatus:
        if job_id != "flush-1":
            raise JobNotFound(f"no job {job_id}")
        return JobStatus(job_id, "flush", "running", "size", "", 0.0, 0, 0)

    def garbage(self) -> GcStatus:
        return GcStatus(GcState.IDLE, (), 3, 100, 200, None)

    def collect_garbage(self, *, delete: bool) -> None:
        self.restarted.append(f"gc {delete}")

    def cancel_job(self, job_id: str) -> None:
        if job_id == "flush-1":
            raise NotCancellable("a flush is not cancelled")
        self.restarted.append(job_id)


@pytest.fixture
def server() -> FakeServer:
    return FakeServer()


@pytest.fixture
def metrics() -> Metrics:
    return Metrics()


@pytest.fixture
def port(server: FakeServer, metrics: Metrics) -> Iterator[ObservePort]:
    port = ObservePort(MetricsSettings(port=0), metrics.registry, server)
    yield port
    port.close()


def ask(url: str, method: str = "GET", **headers: str) -> tuple[int, str]:
    request = urllib.request.Request(url, method=method, headers=headers)
    try:
        answer: HTTPResponse
        with urllib.request.urlopen(request, timeout=5) as answer:
            return answer.status, answer.read().decode()
    except urllib.error.HTTPError as error:
        with error:
            return error.code, error.read().decode()


def test_metrics_are_served_with_what_was_counted(port: ObservePort, metrics: Metrics) -> None:
    metrics.requests.labels(rpc="Search", code="0").inc(3)
    status, text = ask(port.url + "/metrics")
    assert status == 200
    assert 'elanus_requests_total{code="0",rpc="Search"} 3.0' in text


def test_healthz_follows_the_roles(port: ObservePort, server: FakeServer) -> None:
    assert ask(port.url + "/healthz")[0] == 200
    server.serving = False
    status, text = ask(port.url + "/healthz")
    assert status == 503
    assert json.loads(text)["roles"] == [{"role": "proxy", "state": "Initializing", "detail": ""}]


def test_who_stands_by_is_healthy_and_not_ready(port: ObservePort, server: FakeServer) -> None:
    assert ask(port.url + "/readyz")[0] == 200
    server.serving, server.not_serving = False, "Standby"
    assert (ask(port.url + "/healthz")[0], ask(port.url + "/readyz")[0]) == (200, 503)


def test_status_is_the_servers_own_account(port: ObservePort) -> None:
    status, text = ask(port.url + "/status")
    assert status == 200
    pipeline = {"state": "Healthy", "pid": 7, "restarts": 0, "spark": "", "cause": ""}
    assert json.loads(text)["pipeline"] == pipeline


def test_a_defect_answers_one_request_and_the_port_lives_on(port: ObservePort, server: FakeServer) -> None:
    server.broken = True
    assert ask(port.url + "/status") == (500, '{"error":"RuntimeError: a defect"}')
    server.broken = False
    assert ask(port.url + "/status")[0] == 200


def test_a_role_is_restarted(port: ObservePort, server: FakeServer) -> None:
    status, _ = ask(port.url + "/roles/querynode/restart", "POST", **{REQUEST_HEADER: "test"})
    assert status == 200
    assert server.restarted == ["querynode"]


@pytest.mark.parametrize(
    ("role", "method", "headers", "status"),
    [
        ("proxy", "POST", {}, 403),  # what a web page could make a browser send
        ("proxy", "GET", {REQUEST_HEADER: "test"}, 405),
        ("nobody", "POST", {REQUEST_HEADER: "test"}, 404),
        ("busy", "POST", {REQUEST_HEADER: "test"}, 503),
    ],
)
def test_a_role_is_not_restarted(
    port: ObservePort, server: FakeServer, role: str, method: str, headers: dict[str, str], status: int
) -> None:
    assert ask(f"{port.url}/roles/{role}/restart", method, **headers)[0] == status
    assert server.restarted == []


def test_jobs_are_listed(port: ObservePort) -> None:
    assert [job["job_id"] for job in json.loads(ask(port.url + "/jobs")[1])] == ["flush-1"]
    assert json.loads(ask(port.url + "/jobs/flush-1")[1])["kind"] == "flush"
    assert ask(port.url + "/jobs/flush-9") == (404, '{"error":"no job flush-9"}')


@pytest.mark.parametrize(
    ("job", "method", "headers", "status"),
    [
        ("build-1", "POST", {REQUEST_HEADER: "test"}, 200),
        ("build-1", "POST", {}, 403),
        ("build-1", "GET", {REQUEST_HEADER: "test"}, 405),
        ("flush-1", "POST", {REQUEST_HEADER: "test"}, 409),
    ],
)
def test_a_job_is_cancelled_like_a_role_is_restarted(
    port: ObservePort, server: FakeServer, job: str, method: str, headers: dict[str, str], status: int
) -> None:
    assert ask(f"{port.url}/jobs/{job}/cancel", method, **headers)[0] == status
    assert server.restarted == (["build-1"] if status == 200 else [])


@pytest.mark.parametrize(("path", "method", "status"), [("/else", "GET", 404), ("/status", "POST", 405)])
def test_other_requests_are_refused(port: ObservePort, path: str, method: str, status: int) -> None:
    assert ask(port.url + path, method)[0] == status


def test_a_taken_port_is_named_with_its_remedy(
    port: ObservePort, server: FakeServer, metrics: Metrics
) -> None:
    taken = int(port.url.rpartition(":")[2])
    with pytest.raises(PortTaken, match=rf"127.0.0.1:{taken} cannot be opened.*--set metrics.port"):
        ObservePort(MetricsSettings(port=taken), metrics.registry, server)


def test_the_port_is_free_again_after_close(server: FakeServer, metrics: Metrics) -> None:
    first = ObservePort(MetricsSettings(port=0), metrics.registry, server)
    first.close()
    taken = int(first.url.rpartition(":")[2])
    second = ObservePort(MetricsSettings(port=taken), metrics.registry, server)
    try:
        assert ask(second.url + "/healthz")[0] == 200
    finally:
        second.close()


@pytest.mark.parametrize(("path", "delete"), [("run", True), ("dry-run", False)])
def test_a_round_of_garbage_collection_is_begun_from_this_machine(
    server: FakeServer, port: ObservePort, path: str, delete: bool
) -> None:
    status, _ = ask(f"{port.url}/gc/{path}", "POST", **{REQUEST_HEADER: "test"})
    assert (status, server.restarted) == (200, [f"gc {delete}"])
    assert ask(f"{port.url}/gc/{path}", "POST")[0] == 403
    assert ask(f"{port.url}/gc/{path}", "GET")[0] == 405
    status, body = ask(f"{port.url}/gc", "GET")
    assert (status, json.loads(body)["waiting_bytes"]) == (200, 100)


@pytest.mark.parametrize(
    ("origin", "path", "status"),
    [
        ("10.0.0.7", "/metrics", "200"),
        ("10.0.0.7", "/healthz", "200"),
        ("10.0.0.7", "/readyz", "200"),
        ("10.0.0.7", "/status", "403"),
        ("10.0.0.7", "/jobs", "403"),
        ("10.0.0.7", "/gc", "403"),
        ("127.0.0.1", "/status", "200"),
    ],
)
def test_of_a_server_with_users_others_see_health_and_metrics_only(
    server: FakeServer, metrics: Metrics, origin: str, path: str, status: str
) -> None:
    port = ObservePort(MetricsSettings(port=0), metrics.registry, server, guarded=True)
    answered: list[str] = []
    environ: dict[str, Any] = {"REQUEST_METHOD": "GET", "PATH_INFO": path, "REMOTE_ADDR": origin}
    try:
        b"".join(port._answer(environ, lambda line, headers: answered.append(line)))  # type: ignore[arg-type,return-value]
    finally:
        port.close()
    assert answered[0].startswith(status)


@pytest.mark.parametrize(
    ("headers", "status"),
    [
        ({"Host": "evil.example:9091"}, 403),
        ({"Origin": "http://evil.example:9091"}, 403),
        ({"Host": "localhost:9091"}, 200),
        ({"Host": "0.0.0.0:9091"}, 200),
        ({"Host": socket.gethostname()}, 200),
        ({"Host": "localhost:9091", "Origin": "http://localhost:9091"}, 200),
    ],
)
def test_a_page_whose_name_resolves_to_this_machine_is_refused(
    port: ObservePort, server: FakeServer, headers: dict[str, str], status: int
) -> None:
    assert ask(f"{port.url}/status", **headers)[0] == status
    assert ask(f"{port.url}/gc/run", "POST", **{REQUEST_HEADER: "1"}, **headers)[0] == status
    assert len(server.restarted) == (status == 200)
    assert ask(f"{port.url}/metrics", **headers)[0] == 200
    assert ask(f"{port.url}/healthz", **headers)[0] == 200


def test_silent_connections_are_bounded_and_end(port: ObservePort) -> None:
    address = (urlsplit(port.url).hostname, urlsplit(port.url).port)
    with ExitStack() as open_ones, patch.object(http_port._QuietHandler, "timeout", 1.0):
        silent = [
            open_ones.enter_context(socket.create_connection(address, 30)) for _ in range(CONNECTIONS_MAX + 8)
        ]
        assert [one.recv(1) for one in silent] == [b""] * len(silent), "after a second at the latest"
    assert ask(f"{port.url}/healthz")[0] == 200


def test_slow_requests_keep_nobody_out(port: ObservePort, capsys: pytest.CaptureFixture[str]) -> None:
    """Each sends a byte before it counts as silent, and never ends; the oldest of them make room."""
    address = (urlsplit(port.url).hostname, urlsplit(port.url).port)
    with ExitStack() as open_ones, patch.object(http_port._QuietHandler, "timeout", 60.0):
        slow = [
            open_ones.enter_context(socket.create_connection(address, 30)) for _ in range(CONNECTIONS_MAX)
        ]
        for number, one in enumerate(slow):
            one.sendall(b"G" if number % 2 else b"GET /healthz HTTP/1.1\r\nX-Slow: a")
        for _ in range(8):
            assert ask(f"{port.url}/healthz")[0] == 200
        assert slow[0].recv(1) == b""
        slow[-1].sendall(b"ET /healthz HTTP/1.1\r\n\r\n")
        assert slow[-1].recv(12) == b"HTTP/1.0 200", "the latest was not ended"
    assert capsys.readouterr().err == ""


def test_a_connection_for_which_no_thread_starts_takes_no_place(
    port: ObservePort, capsys: pytest.CaptureFixture[str]
) -> None:
    address = (urlsplit(port.url).hostname, urlsplit(port.url).port)
    refused = RuntimeError("can't start new thread")
    with patch.object(threading.Thread, "start", side_effect=refused):
        for _ in range(CONNECTIONS_MAX):
            with socket.create_connection(address, 30) as one:
                assert one.recv(1) == b""
    assert ask(f"{port.url}/healthz")[0] == 200
    assert "can't start new thread" in capsys.readouterr().err
