"""A provider of vectors on a loopback port, in the forms of all providers.

The vector of a text is its length and its first character's number, followed by zeros.
"""

from __future__ import annotations

import contextlib
import json
import threading
from collections.abc import Iterator
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any


def vector_of(text: str, dim: int) -> list[float]:
    return [float(len(text)), float(ord(text[0])), *[0.0] * dim][:dim]


def answer_of(path: str, body: dict[str, Any], dim: int) -> Any:
    """Return what a provider answers at this address."""
    texts = body.get("inputs") or body.get("texts") or body["input"]
    vectors = [vector_of(text, dim) for text in texts]
    if "inputs" in body:
        return vectors
    if "texts" in body:
        return {"embeddings": {"float": vectors}}
    return {"data": [{"embedding": v, "index": n} for n, v in reversed(list(enumerate(vectors)))]}


@dataclass
class StandIn:
    """``failures``: statuses and bodies of the next answers. ``asked``: path, headers and body of each."""

    url: str = ""
    dim: int = 2
    failures: list[tuple[int, bytes]] = field(default_factory=list)
    redirect: str = ""
    asked: list[tuple[str, dict[str, str], dict[str, Any]]] = field(default_factory=list)


@contextlib.contextmanager
def stand_in(dim: int = 2) -> Iterator[StandIn]:
    state = StandIn(dim=dim)

    class Handler(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            body = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
            state.asked.append((self.path, {k.lower(): v for k, v in self.headers.items()}, body))
            status, content = 200, json.dumps(answer_of(self.path, body, state.dim)).encode()
            if state.failures:
                status, content = state.failures.pop(0)
            self.send_response(status)
            if state.redirect:
                self.send_header("Location", state.redirect)
            self.send_header("Content-Length", str(len(content)))
            self.end_headers()
            self.wfile.write(content)

        def log_message(self, *_args: object) -> None:
            """Tests print nothing."""

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    state.url = f"http://127.0.0.1:{server.server_port}"
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01})
    thread.start()
    try:
        yield state
    finally:
        server.shutdown()
        server.server_close()
        thread.join()
