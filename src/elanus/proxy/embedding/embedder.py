"""Texts to vectors in requests of bounded size, by the providers that the settings describe."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np
import pyarrow as pa

from elanus.core.embedding import TEI, Embedding, check_texts, embedding_of
from elanus.core.errors import FunctionFailed, InvalidParameter, RateLimited
from elanus.core.functions import Function
from elanus.core.schema import CollectionSchema
from elanus.proxy.embedding.formats import URLS, Request, Vectors, request_of, vectors_of
from elanus.proxy.embedding.http import post
from elanus.rpc.serving.waiting import about_to_wait

Post = Callable[[Request, float], bytes]


@dataclass(frozen=True, slots=True)
class ProviderAccess:
    """``url``: "" for the provider's own. The key is in ``api_key`` or in a file, which is read for each
    request: it may be replaced."""

    url: str = ""
    api_key: str = field(default="", repr=False)
    api_key_file: str = ""


@dataclass(frozen=True, slots=True)
class EmbeddingPolicy:
    """``providers``: by name. ``timeout_s``: for all texts of a client's request. ``calls_max``: clients'
    requests that wait for providers at a time. ``texts_max``: of a client's request.
    ``client_endpoints``: whether a function may name the address of its provider."""

    providers: Mapping[str, ProviderAccess] = field(default_factory=dict)
    timeout_s: float = 30.0
    calls_max: int = 16
    texts_max: int = 1024
    client_endpoints: bool = True


class Embedder:
    """Used by all gRPC threads.

    ``post`` sends one request and returns its answer before a moment. ``measured`` is called with the
    provider, the outcome ("ok", "failed") and the seconds that a client's request waited.
    """

    def __init__(
        self,
        policy: EmbeddingPolicy,
        post: Post = post,
        measured: Callable[[str, str, float], None] = lambda *_: None,
        now_s: Callable[[], float] = time.monotonic,
    ) -> None:
        self._policy = policy
        self._post = post
        self._measured = measured
        self._now_s = now_s
        self._room = threading.BoundedSemaphore(policy.calls_max)

    def check(self, schema: CollectionSchema) -> None:
        """Have each function of a new schema embed one text. Raises `FunctionFailed`, `InvalidParameter`."""
        for function in schema.stored_functions:
            self.check_function(schema, function)

    def check_function(self, schema: CollectionSchema, function: Function) -> None:
        try:
            self._vectors(_spec(schema, function), ["check"], are_queries=False)
        except FunctionFailed as error:
            raise FunctionFailed(
                f"check function [{function.name}:{function.kind}] failed, the err is: {error.message}"
            ) from None

    def with_vectors(self, schema: CollectionSchema, rows: pa.RecordBatch) -> pa.RecordBatch:
        """Return rows of the schema with the vectors of their texts. Raises as `check`, and `RateLimited`."""
        for function in schema.stored_functions:
            texts = rows.column(function.input).to_pylist()
            check_texts(texts, f"input data of field {function.input}")
            vectors = self._vectors(_spec(schema, function), texts, are_queries=False)
            output = schema.field(function.output)
            place = rows.schema.get_field_index(output.name)
            column = output.vector.to_column(vectors)
            rows = rows.set_column(place, rows.schema.field(place), column)
        return rows

    def of_queries(
        self, schema: CollectionSchema, function: Function, texts: Sequence[str], timeout_s: float
    ) -> Vectors:
        """Return query vectors, float32 (texts, dim). ``timeout_s``: that of the search."""
        check_texts(list(texts), "queries")
        return self._vectors(_spec(schema, function), texts, are_queries=True, timeout_s=timeout_s)

    def _vectors(
        self,
        embedding: Embedding,
        texts: Sequence[str],
        *,
        are_queries: bool,
        timeout_s: float | None = None,
    ) -> Vectors:
        policy = self._policy
        if len(texts) > policy.texts_max:
            raise InvalidParameter(
                f"embedding supports up to [{policy.texts_max}] pieces of data at a time, got [{len(texts)}]"
                ": send fewer rows at a time (function.texts_max)"
            )
        url, key = self._address(embedding)
        if not self._room.acquire(blocking=False):
            raise RateLimited(
                f"{policy.calls_max} requests wait for providers of vectors (function.calls_max); retry"
            )
        about_to_wait()
        longest_s = policy.timeout_s if timeout_s is None else min(policy.timeout_s, timeout_s)
        began_s, size, outcome = self._now_s(), embedding.batch_texts, "failed"
        try:
            parts = []
            for start in range(0, len(texts), size):
                batch = texts[start : start + size]
                request = request_of(embedding, batch, url, key, are_queries=are_queries)
                parts.append(vectors_of(embedding, self._post(request, began_s + longest_s), len(batch)))
            outcome = "ok"
        except FunctionFailed as error:
            raise FunctionFailed(error.message.replace(key, "***") if key else error.message) from None
        finally:
            self._room.release()
            self._measured(embedding.provider, outcome, self._now_s() - began_s)
        return np.concatenate(parts)

    def _address(self, embedding: Embedding) -> tuple[str, str]:
        """Return the provider's address and key. An address that a function names gets no key."""
        provider = embedding.provider
        access = self._policy.providers.get(provider, ProviderAccess())
        own = access.url or URLS.get(provider, "")
        if embedding.endpoint and embedding.endpoint.rstrip("/") != own.rstrip("/"):
            if not self._policy.client_endpoints:
                raise InvalidParameter(
                    f"endpoint: [{embedding.endpoint}] is not that of the settings (function.{provider}.url)"
                    ", and function.client_endpoints is false"
                )
            return embedding.endpoint, ""
        if not own:
            what = "endpoint in the function, or " if provider == TEI else ""
            raise InvalidParameter(
                f"{provider} has no address: set {what}function.{provider}.url on the server"
            )
        key = _key(provider, access)
        if embedding.needs_key and not key:
            raise InvalidParameter(
                f"missing credentials config: set function.{provider}.api_key or "
                f"function.{provider}.api_key_file on the server"
            )
        return own, key


def _spec(schema: CollectionSchema, function: Function) -> Embedding:
    return embedding_of(function.name, function.params, function.output, schema.field(function.output).dim)


def _key(provider: str, access: ProviderAccess) -> str:
    if not access.api_key_file:
        return access.api_key
    try:
        return Path(access.api_key_file).read_text(encoding="utf-8").strip()
    except (OSError, UnicodeDecodeError) as error:
        reason = error.strerror if isinstance(error, OSError) else "it is no text"
        raise FunctionFailed(f"the file function.{provider}.api_key_file cannot be read: {reason}") from None
