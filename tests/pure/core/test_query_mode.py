"""The property that lets reads of a collection have a million hits."""

from __future__ import annotations

import pytest

from elanus.core.errors import InvalidProperty
from elanus.core.query_mode import window_max_rows


def test_the_mode_sets_the_largest_window() -> None:
    assert window_max_rows({}) == 16_384
    assert window_max_rows({"QUERY_MODE": "large_topk"}) == 16_384, "names of properties are exact"
    assert window_max_rows({"query_mode": "Large_TopK"}) == 1_000_000


@pytest.mark.parametrize("mode", ["", "small", " large_topk"])
def test_an_unknown_mode_is_refused(mode: str) -> None:
    with pytest.raises(InvalidProperty) as refused:
        window_max_rows({"query_mode": mode})
    assert refused.value.message == f'invalid query_mode value "{mode}", valid values: [large_topk]'
    assert refused.value.code == 65535
