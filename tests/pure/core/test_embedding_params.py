"""The parameters of TextEmbedding functions: which there are, and which have no place in a schema."""

from __future__ import annotations

import pytest

from elanus.core.embedding import AZURE_OPENAI, PROVIDERS, Embedding, embedding_of
from elanus.core.errors import InvalidParameter, NotSupported
from elanus.core.functions import Function, check_functions
from elanus.core.ids import FieldID
from elanus.core.schema import CollectionSchema, DataType, FieldSchema

TEXT = FieldSchema(FieldID(101), "text", DataType.VARCHAR, max_length=100)
DENSE = FieldSchema(FieldID(102), "dense", DataType.FLOAT_VECTOR, dim=8)
WORDS = FieldSchema(FieldID(103), "words", DataType.SPARSE_FLOAT_VECTOR)


def function(output: str = "dense", **params: str) -> Function:
    return Function(
        "f",
        "TextEmbedding",
        ("text",),
        (output,),
        params=params or {"provider": "tei", "endpoint": "http://t"},
    )


def spec(**params: str) -> Embedding:
    return embedding_of("f", params, "dense", 8)


def test_parameters_are_read_whatever_their_case() -> None:
    assert spec(provider="OpenAI", Model_Name="m", dim="8", user="u") == Embedding(
        "openai", 8, 128, "m", sends_dim=True, user="u"
    )
    assert spec(
        provider="TEI",
        endpoint="http://t",
        truncate="True",
        truncation_direction="Right",
        ingestion_prompt="a",
        search_prompt="b",
        max_client_batch_size="4",
    ) == Embedding(
        "tei", 8, 4, endpoint="http://t", prompts=("a", "b"), truncate="true", truncation_direction="Right"
    )
    assert spec(provider="azure_openai", model_name="m", dim="0").provider == AZURE_OPENAI
    assert not spec(provider="cohere", model_name="m").sends_dim
    assert [p for p in PROVIDERS if not Embedding(p, 8, 1).needs_key] == ["tei"]


@pytest.mark.parametrize(
    ("params", "text"),
    [
        ({}, "unsupported text embedding service provider: [] , list of supported [openai, azure_openai,"),
        ({"provider": "mine"}, "unsupported text embedding service provider: [mine]"),
        ({"provider": "openai"}, "lacks the parameter model_name"),
        (
            {"provider": "openai", "model_name": "m", "dim": "x"},
            "dimension [x] provided in Function params is",
        ),
        (
            {"provider": "openai", "model_name": "m", "dim": "9"},
            "Function output field:[dense]'s dimension [8] does not match the dimension [9] provided in",
        ),
        ({"provider": "openai", "model_name": "m", "endpoint": "http://t"}, "openai does not take"),
        ({"provider": "openai", "model_name": "m", "api_key": "sk"}, "set function.openai.api_key on the"),
        ({"provider": "tei", "credential": "mine"}, "keys are no part of a schema"),
        ({"provider": "tei", "endpoint": "t:80"}, "endpoint: [t:80] is not a valid http/https link"),
        ({"provider": "tei", "endpoint": "file:///etc/passwd"}, "is not a valid http/https link"),
        ({"provider": "tei", "endpoint": "http://"}, "is not a valid http/https link"),
        ({"provider": "tei", "truncate": "maybe"}, "only supports: [true/false]"),
        ({"provider": "tei", "truncation_direction": "Up"}, "only supports [Left/Right]"),
        (
            {"provider": "tei", "max_client_batch_size": "x"},
            "[max_client_batch_size param's value: x] is not a",
        ),
        ({"provider": "tei", "max_client_batch_size": "0"}, "is not a valid number"),
        ({"provider": "cohere", "model_name": "m", "truncate": "true"}, "only supports [NONE/START/END]"),
    ],
)
def test_other_parameters_are_refused(params: dict[str, str], text: str) -> None:
    with pytest.raises(InvalidParameter) as refusal:
        spec(**params)
    assert text in refusal.value.message


def test_a_password_in_an_address_is_not_repeated() -> None:
    with pytest.raises(InvalidParameter, match="endpoint holds a user or a password") as refusal:
        spec(provider="tei", endpoint="http://me:secret@host")
    assert "secret" not in refusal.value.message


@pytest.mark.parametrize(
    ("provider", "text"),
    [
        ("bedrock", "needs the SDK of its maker: use one of openai"),
        ("gemini", "not supported by this release"),
    ],
)
def test_other_providers_of_the_reference_are_refused_by_name(provider: str, text: str) -> None:
    with pytest.raises(NotSupported, match=text):
        spec(provider=provider)


def test_its_fields_are_a_text_and_a_float_vector() -> None:
    check_functions([TEXT, DENSE], [function()])
    check_functions(
        [FieldSchema(FieldID(101), "text", DataType.TEXT), DENSE],
        [function()],
    )
    with pytest.raises(InvalidParameter, match="output field must be a FloatVector field, but got Sparse"):
        check_functions([TEXT, DENSE, WORDS], [function("words")])
    number = FieldSchema(FieldID(101), "text", DataType.INT64)
    with pytest.raises(InvalidParameter, match="input field must be a VARCHAR/TEXT field"):
        check_functions([number, DENSE], [function()])


def test_its_values_are_stored_and_those_of_others_are_not() -> None:
    bm25 = Function("bm25", "BM25", ("text",), ("words",))
    schema = CollectionSchema("c", (TEXT, DENSE, WORDS), functions=(function(), bm25))
    assert schema.stored_functions == (function(),)
    assert schema.computed_functions == (bm25,)
    assert schema.function_of(DENSE) is None
    assert schema.function_of(WORDS) == bm25
