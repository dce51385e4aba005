"""Checks of functions whose vectors a provider computes, with a stand-in for the provider in this process."""

from __future__ import annotations

import json
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

from client_base import VERSION, check, keys, program
from client_checks_schema import refused
from pymilvus import DataType, MilvusClient

NAME = "embedded"


class Provider(BaseHTTPRequestHandler):
    """Answers as Text Embeddings Inference does: the vector of a text has its length and its first letter."""

    def do_POST(self) -> None:
        texts = json.loads(self.rfile.read(int(self.headers["Content-Length"])))["inputs"]
        content = json.dumps([[float(len(text)), float(ord(text[0]))] for text in texts]).encode()
        self.send_response(200)
        self.send_header("Content-Length", str(len(content)))
        self.end_headers()
        self.wfile.write(content)

    def log_message(self, *_args: object) -> None:
        """The program prints one JSON object and nothing else."""


@contextmanager
def provider() -> Iterator[str]:
    server = ThreadingHTTPServer(("127.0.0.1", 0), Provider)
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01})
    thread.start()
    try:
        yield f"http://127.0.0.1:{server.server_port}"
    finally:
        server.shutdown()
        server.server_close()
        thread.join()


@check(
    "Collections", "functions with a provider of vectors: added, altered, dropped", needs=VERSION >= (3, 0)
)
def _() -> None:
    from pymilvus import Function, FunctionType  # older releases have neither

    with provider() as url, embedded("") as client:
        client.insert(NAME, [{"key": 1, "text": "mine", "v": [4.0, 0.0]}])

        def function(**params: str) -> Function:
            params = {"provider": "TEI", "endpoint": url, **params}
            return Function("f", FunctionType.TEXTEMBEDDING, ["text"], ["v"], params=params)

        client.add_collection_function(NAME, function())
        client.insert(NAME, [{"key": 2, "text": "computed"}])
        refused(
            "function output field", lambda: client.insert(NAME, [{"key": 3, "text": "x", "v": [0.0, 0.0]}])
        )
        client.alter_collection_function(NAME, "f", function(truncate="True"))
        (shown,) = client.describe_collection(NAME)["functions"]
        assert shown["params"] == {"provider": "TEI", "endpoint": url, "truncate": "True"}
        client.drop_collection_function(NAME, "f")
        assert not client.describe_collection(NAME).get("functions")
        client.insert(NAME, [{"key": 3, "text": "mine", "v": [5.0, 0.0]}])
        rows = client.query(NAME, filter="key > 0", output_fields=["v"])
        assert {row["key"]: row["v"] for row in rows} == {
            1: [4.0, 0.0],
            2: [8.0, float(ord("c"))],
            3: [5.0, 0.0],
        }


@check("Reads", "text-embedding functions: rows and searches are texts", needs=VERSION >= (2, 6))
def _() -> None:
    with provider() as url, embedded(url) as client:
        client.insert(NAME, [{"key": n, "text": "a" * n} for n in range(1, 41)])
        client.upsert(NAME, [{"key": 1, "text": "a" * 50}])
        (hits,) = client.search(NAME, data=["a" * 49], anns_field="v", limit=3, output_fields=["text"])
        assert keys(hits) == [1, 39, 40]
        assert hits[0]["distance"] == 1.0
        (hits,) = client.search(NAME, data=[[7.2, 97.0]], anns_field="v", limit=1, output_fields=["v"])
        assert (keys(hits), hits[0]["entity"]["v"]) == ([7], [7.0, 97.0])
        refused("empty string in the input data", lambda: client.insert(NAME, [{"key": 99, "text": ""}]))
        refused(
            "empty string in the queries", lambda: client.search(NAME, data=[""], anns_field="v", limit=1)
        )
        client.flush(NAME)
        client.release_collection(NAME)
        client.load_collection(NAME)
        (hits,) = client.search(NAME, data=["a" * 49], anns_field="v", limit=3)
        assert keys(hits) == [1, 39, 40]
    refused("check function [f:TextEmbedding] failed", lambda: made("http://127.0.0.1:9"))


@contextmanager
def embedded(url: str) -> Iterator[MilvusClient]:
    client = made(url)
    try:
        yield client
    finally:
        client.drop_collection(NAME)


def made(url: str) -> MilvusClient:
    """Make and load a collection whose vectors the provider computes; "": the client sends them."""
    from pymilvus import Function, FunctionType  # older releases have neither

    client = MilvusClient(uri=program.uri)
    schema = client.create_schema()
    schema.add_field("key", DataType.INT64, is_primary=True)
    schema.add_field("text", DataType.VARCHAR, max_length=100)
    schema.add_field("v", DataType.FLOAT_VECTOR, dim=2)
    if url:
        params = {"provider": "TEI", "endpoint": url}
        schema.add_function(Function("f", FunctionType.TEXTEMBEDDING, ["text"], ["v"], params=params))
    index = client.prepare_index_params()
    index.add_index("v", index_type="FLAT", metric_type="L2")
    client.create_collection(NAME, schema=schema, index_params=index, consistency_level="Strong")
    return client
