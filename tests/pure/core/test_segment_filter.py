"""Which ratio of clusters a search looks into: the request's, the collection's, or the setting's."""

from __future__ import annotations

import pytest

from elanus.core.errors import InvalidParameter
from elanus.core.segment_filter import property_ratio, ratio_of, with_default_ratio

NAME = "segment_filter_ratio"


def test_the_request_comes_first_then_the_collection_then_the_setting() -> None:
    assert with_default_ratio({NAME: 3}, {NAME: "2"}, 1.0) == {NAME: 3}
    assert with_default_ratio({"ef": 9}, {NAME: "2"}, 1.0) == {"ef": 9, NAME: 2.0}
    assert with_default_ratio({"ef": 9}, {}, 1.0) == {"ef": 9, NAME: 1.0}
    assert with_default_ratio({NAME: 0}, {NAME: "2"}, 1.0) == {NAME: 0}
    assert with_default_ratio({}, {NAME: "0"}, 1.0) == {}, "the collection wants none"
    assert with_default_ratio({}, {}, 0.0) == {}


def test_a_search_that_asks_for_a_recall_gets_no_default() -> None:
    assert with_default_ratio({"target_recall": 0.9}, {NAME: "2"}, 1.0) == {"target_recall": 0.9}


def test_values() -> None:
    assert ratio_of({}) == 0.0
    assert ratio_of({NAME: "1.5"}) == 1.5
    assert property_ratio({}) is None
    assert property_ratio({NAME: "2"}) == 2.0
    for value in ("", "x", "-1", "1001", "nan"):
        with pytest.raises(InvalidParameter, match=NAME):
            property_ratio({NAME: value})
