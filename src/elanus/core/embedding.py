"""The parameters of functions that have a provider turn texts into vectors.

Such a function is computed once, when a row is written: its vectors are stored like those that clients send.
Parameters name the provider and its model and are part of the schema; keys never are. Names of parameters
and the texts of errors are the reference's.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from elanus.core.errors import InvalidParameter, NotSupported
from elanus.core.types import DataType, type_name

OPENAI = "openai"
AZURE_OPENAI = "azure_openai"
COHERE = "cohere"
VOYAGEAI = "voyageai"
SILICONFLOW = "siliconflow"
TEI = "tei"

_COMMON = frozenset({"provider", "dim"})
_PARAMS = {
    OPENAI: {"model_name", "user"},
    AZURE_OPENAI: {"model_name", "user"},
    COHERE: {"model_name", "truncate"},
    VOYAGEAI: {"model_name", "truncation"},
    SILICONFLOW: {"model_name"},
    TEI: {
        "endpoint",
        "ingestion_prompt",
        "search_prompt",
        "truncate",
        "truncation_direction",
        "max_client_batch_size",
    },
}
"""The parameters of each provider."""
PROVIDERS = tuple(_PARAMS)
_WITHOUT_KEYS = frozenset({TEI})
_BATCH_TEXTS = {OPENAI: 128, AZURE_OPENAI: 128, COHERE: 96, VOYAGEAI: 128, SILICONFLOW: 32, TEI: 32}
"""Texts that a request to the provider may have."""
_BATCH_TEXTS_MAX = 1024
_OF_SDKS = frozenset({"bedrock", "vertexai"})
_KNOWN_ELSEWHERE = frozenset({*_OF_SDKS, "dashscope", "zilliz", "gemini", "yc"})
_CREDENTIALS = frozenset({"credential", "integration_id", "api_key"})
_TRUNCATE = ("NONE", "START", "END")
_DIRECTIONS = ("Left", "Right")


@dataclass(frozen=True, slots=True)
class Embedding:
    """How texts become vectors. ``dim``: of the field; ``sends_dim``: whether the model is asked for it.

    ``endpoint``: the address that the function names, "" for that of the settings. ``prompts``: the names of
    the model's prompts for rows and for queries, "" for none. ``truncate``: "" for the provider's default.
    """

    provider: str
    dim: int
    batch_texts: int
    model: str = ""
    sends_dim: bool = False
    user: str = ""
    endpoint: str = ""
    prompts: tuple[str, str] = ("", "")
    truncate: str = ""
    truncation_direction: str = ""

    @property
    def needs_key(self) -> bool:
        return self.provider not in _WITHOUT_KEYS


def embedding_of(name: str, params: Mapping[str, str], output: str, dim: int) -> Embedding:
    """Return what a function asks for. ``output``, ``dim``: of its output field.

    Raises `InvalidParameter`, and `NotSupported` for providers of the reference that this release lacks.
    """
    given = {key.lower(): value for key, value in params.items()}
    provider = given.get("provider", "").lower()
    _check_provider(name, provider)
    for key in given:
        if key in _CREDENTIALS:
            raise InvalidParameter(
                f"function {name} has the parameter {key}: keys are no part of a schema; set "
                f"function.{provider}.api_key on the server"
            )
        if key not in _COMMON and key not in _PARAMS[provider]:
            raise InvalidParameter(
                f"function {name} has the parameter {key}, which the provider {provider} does not take; it "
                f"takes {', '.join(sorted(_COMMON | _PARAMS[provider]))}"
            )
    if "model_name" in _PARAMS[provider] and not given.get("model_name"):
        raise InvalidParameter(f"function {name} lacks the parameter model_name: name a model of {provider}")
    return Embedding(
        provider,
        dim,
        _batch_texts(given, provider),
        given.get("model_name", ""),
        sends_dim=_asked_dim(given.get("dim", "0"), output, dim) > 0,
        user=given.get("user", ""),
        endpoint=_endpoint(given.get("endpoint", "")),
        prompts=(given.get("ingestion_prompt", ""), given.get("search_prompt", "")),
        truncate=_truncate(given, provider),
        truncation_direction=_one_of(given, "truncation_direction", _DIRECTIONS),
    )


def check_embedding_types(inputs: tuple[DataType, ...], output: DataType) -> None:
    """Check the types of the fields. Raises `InvalidParameter`."""
    if len(inputs) != 1 or inputs[0] not in (DataType.VARCHAR, DataType.TEXT):
        raise InvalidParameter(
            f"TextEmbedding function input field must be a VARCHAR/TEXT field, got {len(inputs)} field with "
            f"type {type_name(inputs[0])}"
        )
    if output is not DataType.FLOAT_VECTOR:
        raise InvalidParameter(
            f"TextEmbedding function output field must be a FloatVector field, but got {type_name(output)}"
        )


def check_texts(texts: list[str], what: str) -> None:
    """Check texts to embed. ``what``: what they are part of. Raises `InvalidParameter`."""
    if "" in texts:
        raise InvalidParameter(
            f"there is an empty string in the {what}, TextEmbedding function does not support empty text: "
            f"text {texts.index('')} of {len(texts)}"
        )


def _check_provider(name: str, provider: str) -> None:
    if provider in _PARAMS:
        return
    supported = ", ".join(PROVIDERS)
    if provider in _KNOWN_ELSEWHERE:
        why = ": it needs the SDK of its maker" if provider in _OF_SDKS else ""
        raise NotSupported(
            f"the provider {provider} of function {name} is not supported by this release{why}: use one of "
            f"{supported}, or compute the vectors in the client"
        )
    raise InvalidParameter(
        f"unsupported text embedding service provider: [{provider}] , list of supported [{supported}]: "
        f"function {name}"
    )


def _asked_dim(text: str, output: str, dim: int) -> int:
    try:
        asked = int(text)
    except ValueError:
        raise InvalidParameter(f"dimension [{text}] provided in Function params is not a valid int") from None
    if asked not in (0, dim):
        raise InvalidParameter(
            f"Function output field:[{output}]'s dimension [{dim}] does not match the dimension [{asked}] "
            "provided in Function params."
        )
    return asked


def _batch_texts(given: Mapping[str, str], provider: str) -> int:
    text = given.get("max_client_batch_size")
    if text is None:
        return _BATCH_TEXTS[provider]
    if not text.isdecimal() or not 1 <= int(text) <= _BATCH_TEXTS_MAX:
        raise InvalidParameter(
            f"[max_client_batch_size param's value: {text}] is not a valid number: it is 1 to "
            f"{_BATCH_TEXTS_MAX}"
        )
    return int(text)


def _endpoint(text: str) -> str:
    scheme, separator, rest = text.partition("://")
    host = rest.split("/")[0]
    if text and (scheme not in ("http", "https") or not separator or not host):
        raise InvalidParameter(f"endpoint: [{text}] is not a valid http/https link")
    if "@" in host:
        raise InvalidParameter("endpoint holds a user or a password: keys are no part of a schema")
    return text


def _truncate(given: Mapping[str, str], provider: str) -> str:
    if provider == COHERE:
        return _one_of(given, "truncate", _TRUNCATE)
    key = "truncation" if provider == VOYAGEAI else "truncate"
    value = given.get(key, "").lower()
    if value not in ("", "true", "false"):
        raise InvalidParameter(f"[{key} param's value: {given[key]}] is invalid, only supports: [true/false]")
    return value


def _one_of(given: Mapping[str, str], key: str, allowed: tuple[str, ...]) -> str:
    value = given.get(key, "")
    if value and value not in allowed:
        raise InvalidParameter(
            f"[{key} param's value: {value}] is invalid, only supports [{'/'.join(allowed)}]"
        )
    return value
