"""The requests and answers of providers: pure, one pair of functions for each form."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import msgspec
import numpy as np
import numpy.typing as npt

from elanus.core.embedding import AZURE_OPENAI, COHERE, OPENAI, SILICONFLOW, TEI, VOYAGEAI, Embedding
from elanus.core.errors import FunctionFailed

Vectors = npt.NDArray[np.float32]

URLS = {
    OPENAI: "https://api.openai.com/v1/embeddings",
    COHERE: "https://api.cohere.com/v2/embed",
    VOYAGEAI: "https://api.voyageai.com/v1/embeddings",
    SILICONFLOW: "https://api.siliconflow.cn/v1/embeddings",
}
"""The addresses of providers that have one for everybody."""
_AZURE_VERSION = "2024-06-01"


@dataclass(frozen=True, slots=True)
class Request:
    """``headers`` hold the key: they are never shown."""

    url: str
    body: bytes
    headers: Mapping[str, str] = field(repr=False)


class _Item(msgspec.Struct):
    embedding: list[float]
    index: int = -1


class _Listed(msgspec.Struct):
    data: list[_Item]


class _ByType(msgspec.Struct):
    floats: list[list[float]] = msgspec.field(name="float")


class _Typed(msgspec.Struct):
    embeddings: _ByType


def request_of(
    embedding: Embedding, texts: Sequence[str], url: str, key: str, *, are_queries: bool
) -> Request:
    """``url``: of the provider; ``key``: "" for none. ``are_queries``: the texts are searched with."""
    headers = {"Content-Type": "application/json"}
    if key:
        name, value = (
            ("api-key", key) if embedding.provider == AZURE_OPENAI else ("Authorization", f"Bearer {key}")
        )
        headers[name] = value
    match embedding.provider:
        case "cohere":
            body = _cohere(embedding, texts, are_queries)
        case "voyageai":
            body = _voyageai(embedding, texts, are_queries)
        case "tei":
            body = _tei(embedding, texts, are_queries)
        case _:
            body = _openai(embedding, texts)
    return Request(_address(embedding, url), msgspec.json.encode(body), headers)


def _address(embedding: Embedding, url: str) -> str:
    base = url.rstrip("/")
    if embedding.provider == AZURE_OPENAI:
        return f"{base}/openai/deployments/{embedding.model}/embeddings?api-version={_AZURE_VERSION}"
    return f"{base}/embed" if embedding.provider == TEI else base


def _openai(embedding: Embedding, texts: Sequence[str]) -> dict[str, Any]:
    body: dict[str, Any] = {"input": list(texts), "encoding_format": "float"}
    if embedding.provider != AZURE_OPENAI:  # there the address names the model
        body["model"] = embedding.model
    if embedding.sends_dim and embedding.provider != SILICONFLOW:
        body["dimensions"] = embedding.dim
    if embedding.user:
        body["user"] = embedding.user
    return body


def _cohere(embedding: Embedding, texts: Sequence[str], are_queries: bool) -> dict[str, Any]:
    body: dict[str, Any] = {
        "model": embedding.model,
        "texts": list(texts),
        "input_type": "search_query" if are_queries else "search_document",
        "embedding_types": ["float"],
    }
    if embedding.sends_dim:
        body["output_dimension"] = embedding.dim
    if embedding.truncate:
        body["truncate"] = embedding.truncate
    return body


def _voyageai(embedding: Embedding, texts: Sequence[str], are_queries: bool) -> dict[str, Any]:
    body: dict[str, Any] = {
        "model": embedding.model,
        "input": list(texts),
        "input_type": "query" if are_queries else "document",
    }
    if embedding.sends_dim:
        body["output_dimension"] = embedding.dim
    if embedding.truncate:
        body["truncation"] = embedding.truncate == "true"
    return body


def _tei(embedding: Embedding, texts: Sequence[str], are_queries: bool) -> dict[str, Any]:
    body: dict[str, Any] = {"inputs": list(texts), "truncate": embedding.truncate == "true"}
    if embedding.truncation_direction:
        body["truncation_direction"] = embedding.truncation_direction
    prompt = embedding.prompts[are_queries]
    if prompt:
        body["prompt_name"] = prompt
    return body


def vectors_of(embedding: Embedding, answer: bytes, count: int) -> Vectors:
    """Return the vectors of an answer, float32 (count, dim), in the order of the texts.

    Raises `FunctionFailed` for an answer of another form, number or dimension.
    """
    try:
        lists = _lists(embedding.provider, answer)
    except msgspec.MsgspecError as error:
        raise FunctionFailed(
            f"Call service failed, unmarshal response failed: {embedding.provider} sent no vectors: {error}"
        ) from None
    if len(lists) != count:
        raise FunctionFailed(
            "get embedding failed, the number of texts and embeddings does not match "
            f"text:[{count}], embedding:[{len(lists)}]"
        )
    for one in lists:
        if len(one) != embedding.dim:
            raise FunctionFailed(
                f"the required embedding dim is [{embedding.dim}], but the embedding obtained from the model "
                f"is [{len(one)}]"
            )
    with np.errstate(over="ignore"):  # found below
        vectors: Vectors = np.array(lists, dtype=np.float64).astype(np.float32).reshape(count, embedding.dim)
    if not np.isfinite(vectors).all():
        raise FunctionFailed(f"{embedding.provider} sent a vector with a number that is no float32")
    return vectors


def _lists(provider: str, answer: bytes) -> list[list[float]]:
    if provider == TEI:
        return msgspec.json.decode(answer, type=list[list[float]])
    if provider == COHERE:
        return msgspec.json.decode(answer, type=_Typed).embeddings.floats
    items = msgspec.json.decode(answer, type=_Listed).data
    if all(item.index >= 0 for item in items):
        items = sorted(items, key=lambda item: item.index)
    return [item.embedding for item in items]
