"""A filter that is refused is refused in time that grows with its length."""

from __future__ import annotations

import time

import pytest
from filter_schemas import PLAIN

from elanus.core.errors import InvalidFilter
from elanus.core.limits import FILTER_BRACKETS_MAX
from elanus.expr import compile_filter

QUOTES = 100_000


@pytest.mark.parametrize("quote", ["'", '"'])
@pytest.mark.parametrize("end", ["", "\\"])
def test_quotes_in_a_text_that_is_not_closed_are_looked_at_once(quote: str, end: str) -> None:
    """Each was a beginning that was read to the end, once there were enough brackets to be counted."""
    text = "()" * (FILTER_BRACKETS_MAX + 1) + quote + f"\\{quote}" * QUOTES + end
    began = time.process_time()
    with pytest.raises(InvalidFilter):
        compile_filter(text, PLAIN)
    assert time.process_time() - began < 20
