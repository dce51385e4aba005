"""The time of index builds: how it grows with rows and parameters, and what past builds say of a server."""

from __future__ import annotations

import pytest

from elanus.core.build_speed import BUILD_S_MIN, PastBuild, build_speed
from elanus.core.types import DataType
from elanus.index import IndexSpec, resolve_index
from elanus.index.build_work import build_seconds
from elanus.index.estimate import Plan, estimate
from elanus.index.kinds import kinds_on

ROWS, DIM = 100_000, 64
PQ = {"nlist": "256", "m": "16"}


def index(name: str, data_type: DataType = DataType.FLOAT_VECTOR, dim: int = DIM, **params: str) -> IndexSpec:
    return resolve_index({"index_type": name, **params}, data_type, dim)


@pytest.mark.parametrize(
    ("less", "more"),
    [
        (index("FLAT"), index("IVF_FLAT", nlist="256")),
        (index("IVF_FLAT", nlist="256"), index("IVF_FLAT", nlist="1024")),
        (index("IVF_FLAT", nlist="256"), index("IVF_PQ", **PQ)),
        (index("IVF_FLAT", nlist="256"), index("HNSW")),
        (index("HNSW", M="8"), index("HNSW", M="32")),
        (index("HNSW", efConstruction="100"), index("HNSW", efConstruction="400")),
        (index("HNSW"), index("HNSW", dim=512)),
        (index("HNSW"), index("HNSW_PQ", m="16")),
        (index("DISKANN", search_list_size="64"), index("DISKANN", search_list_size="256")),
        (
            index("SCANN", nlist="64", with_raw_data="true"),
            index("SCANN", nlist="1024", with_raw_data="true"),
        ),
    ],
    ids=lambda spec: str(spec.index_type),
)
def test_work_grows_with_what_a_build_does(less: IndexSpec, more: IndexSpec) -> None:
    assert 0 < build_seconds(less, ROWS) < build_seconds(more, ROWS)
    assert build_seconds(more, ROWS) < build_seconds(more, 10 * ROWS)


@pytest.mark.parametrize(
    ("name", "params", "dim", "rows", "measured_s"),
    [
        ("HNSW", {"M": "16", "efConstruction": "100"}, 64, 20_000, 2.37),
        ("HNSW", {"M": "16", "efConstruction": "200"}, 256, 10_000, 2.84),
        ("IVF_FLAT", {"nlist": "256"}, 64, 40_000, 0.28),
        ("IVF_FLAT", {"nlist": "128"}, 768, 20_000, 0.73),
        ("IVF_PQ", {"nlist": "128", "m": "16"}, 64, 20_000, 7.47),
        ("SCANN", {"nlist": "128"}, 64, 20_000, 0.30),
        ("HNSW_SQ", {}, 64, 10_000, 1.50),
        ("HNSW_PQ", {"m": "16"}, 64, 10_000, 5.14),
        ("DISKANN", {}, 64, 10_000, 1.15),
    ],
)
def test_one_core_was_measured_within_a_factor_of_two(
    name: str, params: dict[str, str], dim: int, rows: int, measured_s: float
) -> None:
    assert 0.5 < build_seconds(index(name, dim=dim, **params), rows) / measured_s < 2


def test_every_kind_of_vectors_has_a_time() -> None:
    types = {
        DataType.FLOAT_VECTOR: {"m": "8", "nlist": "16"},
        DataType.BINARY_VECTOR: {"nlist": "16"},
        DataType.SPARSE_FLOAT_VECTOR: {},
    }
    seen = set()
    for data_type, given in types.items():
        for kind in kinds_on(data_type):
            sent = {name: value for name, value in given.items() if name in kind.build_params}
            if kind.metrics:
                sent["metric_type"] = str(kind.metrics[0])
            dim = 0 if data_type is DataType.SPARSE_FLOAT_VECTOR else DIM
            spec = index(kind.name, data_type, dim, **sent)
            assert build_seconds(spec, ROWS, values_per_row=50) > 0
            seen.add(kind.name)
    assert len(seen) > 10


def test_the_time_of_a_collection_is_that_of_its_segments_and_of_one_replica() -> None:
    plan = Plan(rows=2500, segment_bytes=1000 * (4 * DIM + 8 + 16))
    spec = index("HNSW")
    assert estimate(spec, plan).build_s == pytest.approx(
        2 * build_seconds(spec, 1000) + build_seconds(spec, 500)
    )


def test_builds_of_the_same_type_say_how_quick_a_server_is() -> None:
    past = [PastBuild("HNSW", 40.0, 10.0), PastBuild("HNSW", 20.0, 10.0), PastBuild("IVF_PQ", 30.0, 60.0)]
    assert build_speed(past, "HNSW") == (3.0, 2)
    assert build_speed(past, "IVF_PQ") == (0.5, 1)
    assert build_speed(past, "SCANN") == (pytest.approx(90 / 80), 3)


def test_short_builds_and_those_without_an_estimate_say_nothing() -> None:
    past = [PastBuild("HNSW", 40.0, BUILD_S_MIN / 2), PastBuild("INVERTED", 0.0, 100.0)]
    assert build_speed(past, "HNSW") == build_speed([], "HNSW") == (1.0, 0)
