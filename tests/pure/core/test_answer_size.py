"""The limit of an answer: what its columns show counts, not the memory that they point into."""

from __future__ import annotations

import pyarrow as pa
import pytest

from elanus.core.errors import InvalidParameter
from elanus.core.requests import MB, check_columns_size

TEXTS = pa.array(["x" * 1000] * 3000)


def test_a_part_of_a_large_column_counts_by_itself() -> None:
    check_columns_size(1000, [TEXTS.slice(10, 1000)], MB)
    with pytest.raises(InvalidParameter, match=r"1200 rows take 1\.1 MB .* at most 1 MB.*proxy\.answer_max"):
        check_columns_size(1200, [TEXTS.slice(10, 1200)], MB)


def test_columns_count_together() -> None:
    check_columns_size(400, [TEXTS.slice(0, 400)] * 2, MB)
    with pytest.raises(InvalidParameter, match="600 rows take"):
        check_columns_size(600, [TEXTS.slice(0, 600)] * 2, MB)
