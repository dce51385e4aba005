"""The computed size of an index is within a tenth of one that is built and loaded."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from sparse_data import rows_of, vectors

from elanus.core.errors import InvalidParameter
from elanus.core.types import KINDS as DATA_TYPES
from elanus.core.types import DataType
from elanus.index import build, load, resolve_index
from elanus.index.kinds import KINDS
from elanus.index.sizes import index_size

ROWS, DIM = 1500, 64
FAST = {"efConstruction": "10", "nlist": "8", "search_list_size": "10"}
BUILT: dict[str, dict[str, str]] = {
    "IVF_PQ": {"m": "16", "nbits": "4"},
    "HNSW_SQ": {"sq_type": "SQ6"},
    "HNSW_PQ": {"m": "16", "nbits": "4"},
    "HNSW_PRQ": {"m": "4", "nbits": "3"},
}
OF_VECTORS = {
    name: kind for name, kind in KINDS.items() if any(DATA_TYPES[on].vector is not None for on in kind.on)
}
CASES = [
    (name, data_type, str(metric), {})
    for name, kind in OF_VECTORS.items()
    if not name.startswith("SPARSE")
    for data_type in sorted(kind.on - {DataType.BFLOAT16_VECTOR}, key=int)  # as FLOAT16_VECTOR
    for form in (DATA_TYPES[data_type].vector,)
    for metric in (kind.metrics or (form.metrics if form else ()))
    if str(metric) != "IP"  # as L2, but for the tables of IVF_PQ, which COSINE lacks too
    if str(metric) != "L2" or data_type is DataType.FLOAT_VECTOR
]
REFINED = [
    (name, DataType.FLOAT16_VECTOR, metric, {"refine": "true", "refine_type": refine})
    for name in ("IVF_SQ8", "HNSW_SQ")
    for metric in ("L2", "COSINE")
    for refine in ("FP32", "BF16", "SQ8", "SQ6", "SQ4U")
]


@pytest.mark.parametrize(("name", "data_type", "metric", "more"), CASES + REFINED)
def test_the_size_of_a_built_index(
    name: str, data_type: DataType, metric: str, more: dict[str, str], tmp_path: Path
) -> None:
    known = {key: value for key, value in FAST.items() if key in KINDS[name].build_params}
    sent = {"index_type": name, "metric_type": metric} | known | BUILT.get(name, {}) | more
    spec = resolve_index(sent, data_type, DIM)
    shape = (ROWS, spec.form.width(DIM))
    rows = np.random.default_rng(1).integers(0, 100, shape).astype(spec.form.dtype)
    build(spec, rows, threads=1).save(tmp_path / "index")
    loaded = load(tmp_path / "index", spec)
    said = index_size(spec, ROWS)
    assert said.memory_bytes == pytest.approx(loaded.memory_bytes, rel=0.1)
    assert said.disk_bytes == loaded.disk_bytes
    file_bytes = (tmp_path / "index").stat().st_size
    norms_bytes = 4 * ROWS  # some kinds compute the lengths of the vectors when they are loaded
    assert file_bytes == pytest.approx(said.file_bytes, rel=0.1, abs=norms_bytes)


@pytest.mark.parametrize("name", ["SPARSE_INVERTED_INDEX", "SPARSE_WAND"])
def test_the_size_of_an_index_of_sparse_vectors(name: str) -> None:
    made = vectors(ROWS, 40, seed=3)
    spec = resolve_index({"index_type": name, "metric_type": "IP"}, DataType.SPARSE_FLOAT_VECTOR, 0)
    index = build(spec, rows_of(made), threads=1)
    said = index_size(spec, ROWS, sum(map(len, made)) / ROWS)
    assert said.memory_bytes == pytest.approx(index.memory_bytes, rel=0.1)
    with pytest.raises(InvalidParameter, match="how many are not zero"):
        index_size(spec, ROWS)


def test_few_rows_train_shorter_codes() -> None:
    sent = {"index_type": "IVF_PQ", "metric_type": "IP", "m": "16", "nbits": "12", "nlist": "1"}
    spec = resolve_index(sent, DataType.FLOAT_VECTOR, DIM)
    few, many = index_size(spec, 1000), index_size(spec, 39 << 12)
    assert few.memory_bytes == 1000 * (16 + 8) + 4 * DIM * (1 + 256)
    assert many.memory_bytes == (39 << 12) * (24 + 8) + 4 * DIM * (1 + 4096)


@pytest.mark.parametrize("name", OF_VECTORS)
def test_every_kind_has_a_size(name: str) -> None:
    data_type = min(OF_VECTORS[name].on, key=int)
    form = DATA_TYPES[data_type].vector
    assert form is not None
    metric = (OF_VECTORS[name].metrics or form.metrics)[0]
    sent = {"index_type": name, "metric_type": str(metric)} | BUILT.get(name, {})
    spec = resolve_index(sent, data_type, 0 if name.startswith("SPARSE") else DIM)
    assert index_size(spec, ROWS, 5.0).memory_bytes > 0
