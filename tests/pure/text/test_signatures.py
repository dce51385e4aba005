"""MinHash signatures: what they estimate, that they never change, and what functions may ask for."""

from __future__ import annotations

import numpy as np
import pyarrow as pa
import pytest

from elanus.core.errors import InvalidParameter
from elanus.core.functions import Function
from elanus.core.ids import FieldID
from elanus.core.minhash import MinHash, check_minhash, minhash_of
from elanus.core.schema import CollectionSchema, DataType, FieldSchema
from elanus.text import SignatureRows, analyzers_of, query_texts, signatures_of, with_computed_columns

TEXT = FieldSchema(FieldID(101), "text", DataType.VARCHAR, max_length=999)
OUTPUT = FieldSchema(FieldID(102), "near", DataType.BINARY_VECTOR, dim=512, is_function_output=True)
FUNCTION = Function("minhash", "MinHash", ("text",), ("near",), params={"shingle_size": "1"})
KEY = FieldSchema(FieldID(100), "id", DataType.INT64, is_primary=True)
SCHEMA = CollectionSchema("docs", (KEY, TEXT, OUTPUT), functions=(FUNCTION,))


def elements(texts: list[str], **given: int | bool) -> np.ndarray:
    return signatures_of(MinHash(**{"hashes": 16, **given}), analyzers_of(TEXT), texts).view("<u4")  # type: ignore[arg-type]


def test_the_share_of_equal_elements_is_the_jaccard_similarity() -> None:
    words = [f"w{n}" for n in range(300)]
    texts = [" ".join(words[:200]), " ".join(words[100:])]  # 100 of 300 words are common
    one, other = elements(texts, hashes=2000, shingle_size=1)
    assert abs((one == other).mean() - 1 / 3) < 0.04


def test_signatures_never_change() -> None:
    """They are stored: these values were computed when the function was added."""
    assert elements(["a quick brown fox"], hashes=2).tolist() == [[1813942193, 13874304]]
    assert elements(["a quick brown fox"], hashes=2, sha1=True).tolist() == [[2984649123, 2456643158]]
    assert elements(["a quick brown fox"], hashes=2, by_characters=True, seed=-5).tolist() == [
        [192674049, 89424731]
    ]


@pytest.mark.parametrize(
    ("same", "given"),
    [
        (["To be or not to be", "not to be OR not: to be"], {"shingle_size": 2}),
        (["to be", "To Be!"], {"shingle_size": 5}),  # a text shorter than a shingle is one
        (["abab", "ababab"], {"shingle_size": 2, "by_characters": True}),
        (["", "!?"], {}),
    ],
)
def test_equal_sets_of_shingles_have_equal_signatures(same: list[str], given: dict[str, int]) -> None:
    one, other, different = elements([*same, "nothing in common with these"], **given)
    assert (one == other).all()
    assert not (one == different).any()


def test_rows_are_computed_once_and_continue_known_ones() -> None:
    texts = [f"text number {n}" for n in range(3000)]
    first = SignatureRows(TEXT, OUTPUT, FUNCTION, pa.array(texts[:1500]))
    assert (first.nbytes, first.made) == (0, None)
    known = np.zeros_like(first.rows)  # others than the computed ones, to see that they are kept
    whole = SignatureRows(TEXT, OUTPUT, FUNCTION, pa.array(texts), known=known)
    assert not whole.rows[:1500].any()
    assert whole.rows is whole.rows
    assert whole.nbytes == 3000 * 64
    assert SignatureRows(TEXT, OUTPUT, FUNCTION, pa.array([], pa.string())).rows.shape == (0, 64)


def test_jobs_and_queries_compute_the_same() -> None:
    texts = ["red apple", "green pear"]
    columns = [pa.array([1, 2]), pa.array(texts), pa.array([bytes(64)] * 2, pa.binary(64))]
    rows = pa.record_batch(columns, schema=SCHEMA.arrow_schema)
    stored = with_computed_columns(SCHEMA, rows).column("near").to_pylist()
    asked = query_texts(SCHEMA, OUTPUT)
    assert asked is not None
    assert [row.tobytes() for row in asked.vectors_of(texts)] == stored
    assert query_texts(SCHEMA, TEXT) is None


def test_parameters() -> None:
    sent = {"NUM_HASHES": "4", "shingle_size": "2", "hash_function": "SHA1", "token_level": "Character"}
    assert minhash_of(sent, 128) == MinHash(4, 2, sha1=True, by_characters=True)
    assert minhash_of({"seed": "-7"}, 64) == MinHash(2, seed=-7)


@pytest.mark.parametrize(
    ("params", "dim", "text"),
    [
        ({"num_hashes": "x"}, 64, "param num_hashes:x is not a number"),
        ({"num_hashes": "0"}, 64, "param num_hashes:0 must be positive"),
        ({"num_hashes": "3"}, 64, "dim 64 does not match expected dim 96 (numHashes 3"),
        ({}, 40, "dim 40 is not multiple of 32"),
        ({"shingle_size": "-1"}, 64, "param shingle_size:-1 must be positive"),
        ({"hash_function": "md5"}, 64, "unknown hash function: md5 (expected 'xxhash64' or 'sha1')"),
        ({"token_level": "line"}, 64, "unknown token_level: line (expected 'char' or 'word')"),
        ({"seed": "1.5"}, 64, "param seed:1.5 is not a number"),
        ({"shingles": "2"}, 64, "unknown param shingles of a MinHash function"),
    ],
)
def test_bad_parameters(params: dict[str, str], dim: int, text: str) -> None:
    with pytest.raises(InvalidParameter) as refusal:
        check_minhash(params, "near", dim)
    assert text in refusal.value.message
