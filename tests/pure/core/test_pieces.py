"""Long loops in C are divided: another thread can run between two pieces."""

from __future__ import annotations

from typing import Any

import pyarrow as pa
import pytest

from elanus.core import pieces as module
from elanus.core.errors import InvalidParameter
from elanus.core.json_column import json_column
from elanus.core.pieces import array_of, pieces


@pytest.fixture(autouse=True)
def short_pieces(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "PIECE_ROWS", 3)


def test_pieces_cover_all_values_in_order() -> None:
    for count in range(10):
        values = list(range(count))
        found = [values[piece] for piece in pieces(count)]
        assert [value for part in found for value in part] == values
        assert max(map(len, found)) <= 3


def test_an_array_is_made_of_its_pieces() -> None:
    made: list[int] = []

    def texts(part: list[Any]) -> pa.Array:
        made.append(len(part))
        return pa.array(part, pa.string())

    values = ["a", "bb", "", "ü", "e", "f", "g"]
    assert array_of(values, texts).equals(pa.array(values))
    assert array_of([], texts).equals(pa.array([], pa.string()))
    assert made == [3, 3, 1, 0]


def test_a_document_that_is_no_json_is_named_by_its_row_in_any_piece() -> None:
    documents = [b"{ }", b"1", b"[ ]", b"null", b"tru"]
    assert json_column("field", documents[:4], objects_only=False).to_pylist() == ["{}", "1", "[]", "null"]
    with pytest.raises(InvalidParameter, match="illegal in row 14"):
        json_column("field", documents, objects_only=False, first_row=10)
