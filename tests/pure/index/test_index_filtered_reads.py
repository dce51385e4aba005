"""Under a filter, a graph over codes compares only visible rows with their vectors."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from index_data import ROWS, best, recall, scores, spec_for, vectors_for

from elanus.index import RowMask, VectorIndex, build, load, resolve_search
from elanus.index.diskann import DiskannIndex
from elanus.index.files import FiledArray


@pytest.fixture(autouse=True)
def always_walked(monkeypatch: pytest.MonkeyPatch) -> None:
    """The rows are few, so an exact scan would be chosen."""
    monkeypatch.setattr(DiskannIndex, "exact_weight", 1e9)


@pytest.mark.parametrize("metric", ["L2", "COSINE"])
@pytest.mark.parametrize("share", [0.3, 0.98])
def test_hidden_rows_are_not_read(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, metric: str, share: float
) -> None:
    rows, queries = vectors_for(metric)
    spec = spec_for("DISKANN", metric)
    build(spec, rows, 1).save(tmp_path / "index")
    index = load(tmp_path / "index", spec)
    assert isinstance(index, VectorIndex)
    visible = np.random.default_rng(2).random(ROWS) < share
    read: list[np.ndarray] = []
    whole = FiledArray.read

    def noted(self: FiledArray, wanted: slice | np.ndarray) -> np.ndarray:
        assert not isinstance(wanted, slice), "a scan of all rows"
        read.append(wanted)
        return whole(self, wanted)

    monkeypatch.setattr(FiledArray, "read", noted)
    params = resolve_search(spec, {"search_list": 400}, 10)
    found = index.search(queries, 10, params, RowMask.from_bool(visible))
    met = np.concatenate(read)
    assert visible[met].all()
    assert len(met) <= len(queries) * 1.2 * 400
    assert recall(found.rows, best(scores(queries, rows, metric), 10, metric, visible)) >= 0.95
