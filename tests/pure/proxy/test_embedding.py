"""TextEmbedding functions: what providers are asked, what is made of their answers, and who gets a key."""

from __future__ import annotations

import contextlib
import json
import socket
import threading
import time
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from provider_stand_in import answer_of, stand_in, vector_of

from elanus.core.embedding import embedding_of
from elanus.core.errors import FunctionFailed, InvalidParameter, RateLimited
from elanus.core.functions import Function
from elanus.core.ids import FieldID
from elanus.core.rows import absent_column
from elanus.core.schema import CollectionSchema, DataType, FieldSchema
from elanus.proxy.embedding import Embedder, EmbeddingPolicy, ProviderAccess
from elanus.proxy.embedding.formats import Request, request_of
from elanus.proxy.embedding.http import TRIES, post

DIM = 2
KEY = "sk-secret-key"


def function(provider: str, **params: str) -> Function:
    named = {} if provider == "tei" or "model_name" in params else {"model_name": "m"}
    return Function(
        "embed", "TextEmbedding", ("text",), ("dense",), params={"provider": provider, **named, **params}
    )


def schema(of: Function) -> CollectionSchema:
    return CollectionSchema(
        "c",
        (
            FieldSchema(FieldID(100), "pk", DataType.INT64, is_primary=True),
            FieldSchema(FieldID(101), "text", DataType.VARCHAR, max_length=100),
            FieldSchema(FieldID(102), "dense", DataType.FLOAT_VECTOR, dim=DIM, is_function_output=True),
        ),
        functions=(of,),
    )


def rows(*texts: str) -> pa.RecordBatch:
    of = schema(function("tei"))
    dense = absent_column(of.field("dense"), len(texts))
    return pa.RecordBatch.from_arrays(
        [pa.array(range(len(texts))), pa.array(texts), dense], schema=of.arrow_schema
    )


class Asked:
    """Answers as providers do, without a network."""

    def __init__(self) -> None:
        self.requests: list[Request] = []

    def __call__(self, request: Request, deadline_s: float) -> bytes:
        self.requests.append(request)
        return json.dumps(answer_of(request.url, json.loads(request.body), DIM)).encode()

    @property
    def bodies(self) -> list[dict[str, Any]]:
        return [json.loads(request.body) for request in self.requests]


def embedder(asked: Callable[[Request, float], bytes], **policy: Any) -> Embedder:
    access = ProviderAccess(api_key=KEY)
    names = ("openai", "azure_openai", "cohere", "voyageai", "siliconflow", "tei")
    providers = dict.fromkeys(names, access)
    providers["azure_openai"] = replace(access, url="https://mine.openai.azure.com/")
    providers["tei"] = replace(access, url="http://tei:8080")
    return Embedder(EmbeddingPolicy(**{"providers": providers, **policy}), asked)


FORMS = {
    "openai": (
        {"dim": "2", "user": "me"},
        "https://api.openai.com/v1/embeddings",
        "Authorization",
        {"model": "m", "input": ["a"], "encoding_format": "float", "dimensions": 2, "user": "me"},
    ),
    "azure_openai": (
        {},
        "https://mine.openai.azure.com/openai/deployments/m/embeddings?api-version=2024-06-01",
        "api-key",
        {"input": ["a"], "encoding_format": "float"},
    ),
    "cohere": (
        {"truncate": "END"},
        "https://api.cohere.com/v2/embed",
        "Authorization",
        {
            "model": "m",
            "texts": ["a"],
            "input_type": "search_document",
            "embedding_types": ["float"],
            "truncate": "END",
        },
    ),
    "voyageai": (
        {"dim": "2", "truncation": "true"},
        "https://api.voyageai.com/v1/embeddings",
        "Authorization",
        {"model": "m", "input": ["a"], "input_type": "document", "output_dimension": 2, "truncation": True},
    ),
    "siliconflow": (
        {},
        "https://api.siliconflow.cn/v1/embeddings",
        "Authorization",
        {"model": "m", "input": ["a"], "encoding_format": "float"},
    ),
    "tei": (
        {"truncate": "True", "truncation_direction": "Left", "ingestion_prompt": "passage"},
        "http://tei:8080/embed",
        "Authorization",
        {"inputs": ["a"], "truncate": True, "truncation_direction": "Left", "prompt_name": "passage"},
    ),
}


@pytest.mark.parametrize("provider", FORMS)
def test_each_provider_is_asked_in_its_form(provider: str) -> None:
    params, url, header, body = FORMS[provider]
    asked = Asked()
    of = schema(function(provider, **params))
    made = embedder(asked).with_vectors(of, rows("a"))
    (request,) = asked.requests
    assert (request.url, asked.bodies) == (url, [body])
    assert request.headers[header].endswith(KEY)
    assert KEY not in repr(request)
    vectors = of.field("dense").vector.to_matrix(made.column("dense"))
    assert vectors.tolist() == [vector_of("a", DIM)]


def test_texts_of_searches_are_marked_as_queries() -> None:
    asked = Asked()
    for provider, params in (("cohere", {}), ("voyageai", {}), ("tei", {"search_prompt": "query"})):
        of = function(provider, **params)
        found = embedder(asked).of_queries(schema(of), of, ["b"], 5.0)
        assert found.tolist() == [vector_of("b", DIM)]
        assert found.dtype == np.float32
    cohere, voyageai, tei = asked.bodies
    assert (cohere["input_type"], voyageai["input_type"], tei["prompt_name"]) == (
        "search_query",
        "query",
        "query",
    )


def test_texts_are_sent_in_requests_of_bounded_size_in_their_order() -> None:
    asked = Asked()
    texts = [chr(ord("a") + n) * (n + 1) for n in range(7)]
    of = schema(function("tei", max_client_batch_size="3"))
    made = embedder(asked).with_vectors(of, rows(*texts))
    assert [len(body["inputs"]) for body in asked.bodies] == [3, 3, 1]
    vectors = of.field("dense").vector.to_matrix(made.column("dense"))
    assert vectors.tolist() == [vector_of(text, DIM) for text in texts]
    assert made.column("text").to_pylist() == texts


def test_a_collection_without_such_functions_asks_nobody() -> None:
    asked = Asked()
    plain = replace(schema(function("tei")), functions=())
    given = rows("a")
    assert embedder(asked).with_vectors(plain, given) is given
    assert asked.requests == []


@pytest.mark.parametrize(
    ("answer", "text"),
    [
        (
            b"[[1.0, 2.0, 3.0]]",
            "the required embedding dim is [2], but the embedding obtained from the model",
        ),
        (b"[]", "the number of texts and embeddings does not match text:[1], embedding:[0]"),
        (b"<html>", "unmarshal response failed"),
        (b'[["a", "b"]]', "unmarshal response failed"),
        (b"[[1e300, 0]]", "a number that is no float32"),
    ],
)
def test_what_is_no_answer_is_refused(answer: bytes, text: str) -> None:
    of = schema(function("tei"))
    with pytest.raises(FunctionFailed) as refusal:
        embedder(lambda *_: answer).check(of)
    assert text in refusal.value.message
    assert "check function [embed:TextEmbedding] failed" in refusal.value.message
    assert refusal.value.code == 65535


def test_empty_texts_and_too_many_are_refused_before_anybody_is_asked() -> None:
    asked = Asked()
    of = function("tei")
    with pytest.raises(InvalidParameter, match=r"empty string in the input data of field text.*text 1 of 2"):
        embedder(asked).with_vectors(schema(of), rows("a", ""))
    with pytest.raises(InvalidParameter, match="empty string in the queries"):
        embedder(asked).of_queries(schema(of), of, [""], 5.0)
    with pytest.raises(InvalidParameter, match=r"up to \[2\] pieces of data at a time, got \[3\]"):
        embedder(asked, texts_max=2).with_vectors(schema(of), rows("a", "b", "c"))
    assert asked.requests == []


def test_more_requests_than_may_wait_are_refused_and_the_room_is_given_back() -> None:
    of = schema(function("tei"))
    refused: list[RateLimited] = []

    def ask_again(request: Request, deadline_s: float) -> bytes:
        with pytest.raises(RateLimited, match=r"function\.calls_max") as refusal:
            one.with_vectors(of, rows("b"))
        refused.append(refusal.value)
        raise FunctionFailed("down")

    one = embedder(ask_again, calls_max=1)
    for _ in range(2):
        with pytest.raises(FunctionFailed, match="down"):
            one.with_vectors(of, rows("a"))
    assert len(refused) == 2


def test_the_time_of_each_request_is_measured_by_its_outcome() -> None:
    measured: list[tuple[str, str, float]] = []
    clock = iter([1.0, 1.5, 5.0, 8.0])
    provider = Asked()
    policy = EmbeddingPolicy({"tei": ProviderAccess("http://t")})
    one = Embedder(policy, provider, lambda *facts: measured.append(facts), lambda: next(clock))
    one.check(schema(function("tei")))
    wide = replace(schema(function("tei")).field("dense"), dim=3)
    fields = (*schema(function("tei")).fields[:2], wide)
    with pytest.raises(FunctionFailed):
        one.check(replace(schema(function("tei")), fields=fields))
    assert measured == [("tei", "ok", 0.5), ("tei", "failed", 3.0)]


def test_a_key_goes_to_the_address_of_the_settings_alone() -> None:
    asked = Asked()
    embedder(asked).check(schema(function("tei", endpoint="http://elsewhere:80")))
    embedder(asked).check(schema(function("tei", endpoint="http://tei:8080/")))
    elsewhere, own = asked.requests
    assert elsewhere.url == "http://elsewhere:80/embed"
    assert "Authorization" not in elsewhere.headers
    assert own.headers["Authorization"] == f"Bearer {KEY}"
    with pytest.raises(InvalidParameter, match=r"function\.client_endpoints is false"):
        embedder(asked, client_endpoints=False).check(schema(function("tei", endpoint="http://elsewhere")))


def test_a_missing_key_and_a_missing_address_name_the_setting(tmp_path: Path) -> None:
    with pytest.raises(InvalidParameter, match=r"missing credentials config: set function\.openai\.api_key"):
        Embedder(EmbeddingPolicy()).check(schema(function("openai")))
    with pytest.raises(InvalidParameter, match=r"set endpoint in the function, or function\.tei\.url"):
        Embedder(EmbeddingPolicy()).check(schema(function("tei")))
    absent = {"openai": ProviderAccess(api_key_file=str(tmp_path / "absent"))}
    with pytest.raises(FunctionFailed, match=r"function\.openai\.api_key_file cannot be read: No such file"):
        Embedder(EmbeddingPolicy(absent)).check(schema(function("openai")))


def test_a_file_with_a_key_is_read_for_each_request(tmp_path: Path) -> None:
    asked, file = Asked(), tmp_path / "key"
    one = Embedder(EmbeddingPolicy({"openai": ProviderAccess(api_key_file=str(file))}), asked)
    for key in ("old", "new"):
        file.write_text(key + "\n")
        one.check(schema(function("openai")))
    assert [r.headers["Authorization"] for r in asked.requests] == ["Bearer old", "Bearer new"]


def test_a_key_that_a_provider_repeats_is_not_shown() -> None:
    def refuse(request: Request, deadline_s: float) -> bytes:
        raise FunctionFailed(f"Call service failed, errs:[401, Incorrect API key provided: {KEY}]")

    with pytest.raises(FunctionFailed, match=r"Incorrect API key provided: \*\*\*") as refusal:
        embedder(refuse).check(schema(function("openai")))
    assert KEY not in str(refusal.value)
    assert KEY not in repr(embedder(refuse)._policy)


# over HTTP

LATER = 1e9


def request(url: str) -> Request:
    of = schema(function("tei", endpoint=url))
    spec = embedding_of("embed", of.functions[0].params, "dense", DIM)
    return request_of(spec, ["ab"], url, "", are_queries=False)


def test_a_provider_is_reached_over_http() -> None:
    with stand_in() as provider:
        of = function("tei", endpoint=provider.url)
        found = Embedder(EmbeddingPolicy()).of_queries(schema(of), of, ["ab", "c"], 30.0)
    assert found.tolist() == [[2.0, 97.0], [1.0, 99.0]]
    ((path, headers, body),) = provider.asked
    assert (path, body["inputs"]) == ("/embed", ["ab", "c"])
    assert headers["content-type"] == "application/json"


def test_what_may_pass_is_tried_again_with_growing_pauses() -> None:
    pauses: list[float] = []
    with stand_in() as provider:
        provider.failures = [(503, b""), (429, b"")]
        assert json.loads(post(request(provider.url), LATER, lambda: 0.0, pauses.append)) == [[2.0, 97.0]]
        assert pauses == [0.5, 1.0]
        provider.failures = [(500, b'{"error": "no GPU"}')] * TRIES
        with pytest.raises(FunctionFailed, match=r"errs:\[500 Internal Server Error, no GPU\]"):
            post(request(provider.url), LATER, lambda: 0.0, pauses.append)
        assert len(provider.asked) == 2 * TRIES


@pytest.mark.parametrize(
    ("body", "said"),
    [
        (b'{"error": {"message": "too long"}}', "400 Bad Request, too long"),
        (b'{"message": "bad model"}', "400 Bad Request, bad model"),
        (b"root:x:0:0", "400 Bad Request, ]"),
        (b'["root:x"]', "400 Bad Request, ]"),
    ],
)
def test_a_refusal_is_final_and_shows_what_the_provider_says_is_wrong(body: bytes, said: str) -> None:
    with stand_in() as provider:
        provider.failures = [(400, body)]
        with pytest.raises(FunctionFailed) as refusal:
            post(request(provider.url), LATER, lambda: 0.0)
        assert said in refusal.value.message
        assert "root" not in refusal.value.message
        assert len(provider.asked) == 1


def test_a_redirect_is_not_followed() -> None:
    with stand_in() as other, stand_in() as provider:
        provider.redirect, provider.failures = other.url, [(307, b"")]
        with pytest.raises(FunctionFailed, match="307"):
            post(request(provider.url), LATER, lambda: 0.0)
    assert other.asked == []


def test_a_provider_that_is_not_there_and_one_that_is_late_are_named() -> None:
    with stand_in() as provider:
        gone = request(provider.url)
    pauses: list[float] = []
    with pytest.raises(FunctionFailed, match=r"Call service failed, errs:\[.*127\.0\.0\.1"):
        post(gone, LATER, lambda: 0.0, pauses.append)
    assert len(pauses) == TRIES - 1
    with pytest.raises(FunctionFailed, match=r"did not answer in time \(function\.timeout_s\)"):
        post(gone, 1.0, lambda: 2.0)


CONTINUES = b"HTTP/1.1 100 Continue\r\n\r\n"
NO_END_OF_A_HEAD = b"HTTP/1.1 200 OK\r\nX-Slow: "
NO_END_OF_A_LENGTH = b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n"
NO_END_OF_AN_ERROR = b"HTTP/1.1 400 Bad Request\r\nContent-Length: 1000000\r\n\r\n"
NO_END_OF_A_HANDSHAKE = b"\x16\x03\x03\x3f\xff"
"""The head of a TLS record of 16,383 bytes."""


@pytest.mark.parametrize(
    ("scheme", "first", "then"),
    [
        ("http", CONTINUES, CONTINUES),
        ("http", NO_END_OF_A_HEAD, b"x"),
        ("http", NO_END_OF_A_LENGTH, b"0"),
        ("http", NO_END_OF_AN_ERROR, b"x"),
        ("https", NO_END_OF_A_HANDSHAKE, b"\x02"),
    ],
)
def test_a_provider_that_always_sends_a_little_more_is_late_too(
    scheme: str, first: bytes, then: bytes
) -> None:
    """Each piece comes well within the time, and all of them never do."""
    ended = threading.Event()

    def dribble(server: socket.socket) -> None:
        connection, _ = server.accept()
        with connection, contextlib.suppress(OSError):  # until the other side has ended it
            connection.sendall(first)
            for _ in range(500):
                if ended.wait(0.01):
                    return
                connection.sendall(then)

    with socket.create_server(("127.0.0.1", 0)) as server:
        thread = threading.Thread(target=dribble, args=(server,))
        thread.start()
        port = server.getsockname()[1]
        try:
            with pytest.raises(FunctionFailed, match=r"did not answer in time \(function\.timeout_s\)"):
                post(request(f"{scheme}://127.0.0.1:{port}"), time.monotonic() + 0.5)
        finally:
            ended.set()
            thread.join()
