"""Run by `test_adding` on sources with one more kind of index: built, saved, loaded, searched."""

from __future__ import annotations

import sys
from pathlib import Path

import numpy as np
import pytest

from elanus.core.errors import InvalidParameter
from elanus.core.types import DataType
from elanus.index import build, load, resolve_index, resolve_search

ROWS, DIM = 500, 4
PARAMS = {"index_type": "TOY", "metric_type": "L2"}


def main() -> None:
    vectors = np.zeros((ROWS, DIM), np.float32)
    vectors[:, 0] = np.arange(ROWS)
    spec = resolve_index(PARAMS, DataType.FLOAT_VECTOR, DIM)
    path = Path(sys.argv[1]) / "index"
    build(spec, vectors, 1).save(path)
    index = load(path, spec)
    query = np.zeros((1, DIM), np.float32)
    for sent, rows in (({}, [0, 10, 20]), ({"stride": "7"}, [0, 7, 14])):
        assert index.search(query, 3, resolve_search(spec, sent, 3)).rows.tolist() == [rows]
    with pytest.raises(InvalidParameter, match=r"param 'stride' \(101\) should be in range \[1, 100\]"):
        resolve_search(spec, {"stride": 101}, 3)


if __name__ == "__main__":
    main()
