"""The console over the fake verbs, on a port of its own, and a browser that has no pages."""

from __future__ import annotations

import http.client
import json
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

from fake_verbs import FakeVerbs
from wire_calls import observe_nothing

from elanus.console.app import COOKIE, REQUEST_HEADER, Site, console_routes
from elanus.console.sessions import Sessions
from elanus.console.status import console_operations
from elanus.core.access import AccessPolicy
from elanus.core.errors import NotReady
from elanus.core.slow_requests import SlowRequest
from elanus.proxy.access.guard import AccessGuard, AllowAll
from elanus.proxy.access.sign_in import SignIn
from elanus.proxy.calls import Calls
from elanus.proxy.rest.front import RestFront
from elanus.proxy.rest.operations import rest_operations
from elanus.proxy.rest.server import RestServer
from elanus.proxy.wire.families import milvus_families
from elanus.proxy.wire.operations import milvus_operations
from elanus.server.doctor import Finding, Severity
from elanus.server.status import (
    ChannelStatus,
    CollectionStatus,
    JobStatus,
    PipelineStatus,
    RecallStatus,
    ResourceGroup,
    RoleStatus,
    Status,
)

BODY_MAX_BYTES = 10_000


@dataclass
class Clock:
    now_s: float = 100.0

    def __call__(self) -> float:
        return self.now_s


@dataclass
class FakeSource:
    """Implements `elanus.console.status.Source`.

    ``asked``: how many times the status was asked for. ``broken``: it fails. ``records``: of the audit log.
    """

    asked: int = 0
    broken: bool = False
    records: list[Mapping[str, object]] | None = None

    def status(self) -> Status:
        self.asked += 1
        if self.broken:
            raise NotReady("the coordinators do not answer")
        start = "2026-01-01T00:00:00.000+00:00"
        return Status(
            "9.9",
            61.0,
            [RoleStatus("rootcoord", "Healthy"), RoleStatus("datacoord", "Abnormal", "does not answer")],
            [ChannelStatus("dml_0", 7, 2500.0, 4096, 2, 5)],
            [CollectionStatus("default", "books", 100, 3, {"Flushed": 1})],
            [JobStatus("job-1", "flush", "finished", "a flush was due", start, 2000.0, 3, 64)],
            PipelineStatus("Healthy", 77, 1),
            recalls=[
                RecallStatus(
                    "default.books", "vector", "HNSW", "all rows", 90, 0.5, 0.4, 0.6, 0.9, "ef 8 is small"
                )
            ],
            resource_groups=[ResourceGroup("__default_resource_group", [3], 0, 1)],
        )

    def slow(self) -> list[SlowRequest]:
        return [SlowRequest(0, "Search", "default", "books", 1234.5, 0, "t", "Search: 1234.50 ms")]

    def findings(self, status: Status) -> list[Finding]:
        return [
            Finding(
                Severity.WARNING, f"release {status.version} is old", "a figure", "do this", rule="a-rule"
            )
        ]

    def audit(self) -> list[Mapping[str, object]] | None:
        return self.records

    def figures(self) -> Mapping[str, float]:
        return {"rowsInserted": 3.0, "memoryBytes": 5e8, "machineMemoryBytes": 8e9}


@dataclass
class Browser:
    """``sent``: the headers of every request. A session's cookie is kept, as by a browser."""

    port: int
    sent: dict[str, str] = field(default_factory=lambda: {REQUEST_HEADER: "test"})
    cookie: str = ""
    headers: Mapping[str, str] = field(default_factory=dict)
    """Those of the last answer; names in lower case."""

    def ask(self, method: str, path: str, body: object = None, **headers: str) -> tuple[int, Any]:
        """Return the HTTP status and the answer: the JSON, or the bytes of a file."""
        connection = http.client.HTTPConnection("127.0.0.1", self.port, timeout=30)
        sent = {**self.sent, **{name.replace("_", "-"): value for name, value in headers.items()}}
        if self.cookie:
            sent["Cookie"] = f"{COOKIE}={self.cookie}"
        try:
            connection.request(method, path, None if body is None else json.dumps(body), sent)
            response = connection.getresponse()
            content = response.read()
        finally:
            connection.close()
        self.headers = {name.lower(): value for name, value in response.headers.items()}
        if set_cookie := self.headers.get("set-cookie", ""):
            self.cookie = set_cookie.partition(";")[0].partition("=")[2].strip('"')
        is_json = self.headers.get("content-type") == "application/json"
        return response.status, json.loads(content) if is_json else content

    def sign_in(self, user: str, password: str) -> int:
        return self.ask("POST", "/ui/api/session", {"user": user, "password": password})[0]

    def call(self, path: str, **body: object) -> tuple[int, Any]:
        status, answer = self.ask("POST", f"/ui/api/call/{path}", body)
        return status, answer.get("data", answer["code"])


@dataclass
class World:
    """``policy``: the users; the clock moves when a test moves it."""

    verbs: FakeVerbs
    source: FakeSource
    clock: Clock
    browser: Browser
    recorded: list[tuple[str, int]]


@contextmanager
def served(verbs: FakeVerbs, *, users: bool) -> Iterator[World]:
    """Serve the console of a server with or without users. Passwords are their own hashes."""

    def policy() -> AccessPolicy:
        return verbs.policy

    def real_name(database: str, name: str) -> str:
        return verbs.collection(database, name).view.name

    source, clock = FakeSource(), Clock()
    sign_in = SignIn(policy if users else None, "Milvus", lambda password, stored: password == stored)
    guard = AccessGuard(policy, real_name)
    families = milvus_families(verbs, "STANDALONE", guard) if users else milvus_families(verbs, "STANDALONE")
    operations = (*milvus_operations(families), *rest_operations(verbs), *console_operations(source, clock))
    recorded: list[tuple[str, int]] = []

    def observe(name: str, code: int, seconds: float) -> None:
        observe_nothing(name, code, seconds)
        recorded.append((name, code))

    calls = Calls(operations, guard if users else AllowAll(), observe, sign_in)
    with ThreadPoolExecutor(4) as workers:
        site = Site(BODY_MAX_BYTES, is_local=True, has_tls=False)
        routes = console_routes(calls, Sessions(sign_in, clock), workers, site)
        rest = RestFront(calls, strict=False)
        server = RestServer(rest, workers, "127.0.0.1", 0, body_max_bytes=BODY_MAX_BYTES, mounts=routes)
        port = int(server.start().rpartition(":")[2])
        yield World(verbs, source, clock, Browser(port), recorded)
        server.stop(grace_s=0)


def books(verbs: FakeVerbs, count: int = 3, name: str = "books") -> None:
    """Make a loaded collection with some rows, by way of the REST API."""
    rows = [{"id": key, "vector": [float(key), 1.0], "title": f"<b>{key}</b>"} for key in range(count)]
    shelve(verbs, name, rows)


def shelve(verbs: FakeVerbs, name: str, rows: Sequence[Mapping[str, object]], id_type: str = "Int64") -> None:
    """Make a loaded collection with a dynamic field, vectors of two dimensions and these rows."""
    calls = Calls(
        (*milvus_operations(milvus_families(verbs, "STANDALONE")), *rest_operations(verbs)),
        AllowAll(),
        observe_nothing,
    )
    rest = RestFront(calls, strict=False)
    keys = {"idType": id_type, "params": {"max_length": 100}}
    for path, body in (
        ("collections/create", {"collectionName": name, "dimension": 2, "metricType": "L2", **keys}),
        ("entities/insert", {"collectionName": name, "data": rows}),
    ):
        reply = rest.answer(path, {}, json.dumps(body).encode(), "here")
        assert json.loads(reply.body)["code"] == 0, reply.body
