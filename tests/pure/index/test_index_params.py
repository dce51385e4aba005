"""Build and search parameters: every known key in its domain, unknown ones ignored, the reference's words."""

from __future__ import annotations

import json

import pytest
import structlog
from index_data import BUILD_PARAMS, CASES, DIM, spec_for

from elanus.core.errors import InvalidDimension, InvalidParameter, InvalidTopK, NotSupported
from elanus.core.metrics import ITERATOR_PAGE, Metric
from elanus.core.schema import DataType
from elanus.index import (
    SearchParams,
    brute_force,
    check_choice,
    ignored_params,
    note_ignored,
    resolve_index,
    resolve_search,
)

FLOAT, BINARY = DataType.FLOAT_VECTOR, DataType.BINARY_VECTOR


@pytest.mark.parametrize(
    ("sent", "expected"),
    [
        ({"index_type": "HNSW"}, {"M": 16, "efConstruction": 200}),
        ({"index_type": "HNSW", "M": "2", "efConstruction": "1"}, {"M": 2, "efConstruction": 1}),
        ({"index_type": "HNSW", "M": "2048"}, {"M": 2048, "efConstruction": 200}),
        ({"index_type": "HNSW", "params": '{"M": 8, "efConstruction": 64}'}, {"M": 8, "efConstruction": 64}),
        ({"index_type": "HNSW", "params": '{"M": "8"}'}, {"M": 8, "efConstruction": 200}),
        ({"index_type": "HNSW", "params": '{"M": null}'}, {"M": 16, "efConstruction": 200}),
        ({"index_type": "HNSW", "params": ""}, {"M": 16, "efConstruction": 200}),
        ({"index_type": "HNSW", "efConstruction": "2147483647"}, {"M": 16, "efConstruction": 2147483647}),
        ({"index_type": "IVF_FLAT"}, {"nlist": 128}),
        ({"index_type": "IVF_SQ8", "nlist": "65536"}, {"nlist": 65536}),
        ({"index_type": "FLAT", "dim": "16"}, {}),
        ({"index_type": "FLAT", "mmap.enabled": "false"}, {}),
    ],
)
def test_build_parameters(sent: dict[str, str], expected: dict[str, int]) -> None:
    spec = resolve_index(sent, FLOAT, DIM)
    assert {name: spec.params[name] for name in expected} == expected
    assert spec.index_type == spec.declared_type == sent["index_type"]


@pytest.mark.parametrize(
    ("sent", "data_type", "text"),
    [
        ({"index_type": "HNSW", "M": "1"}, FLOAT, r"param 'M' \(1\) should be in range \[2, 2048\]"),
        ({"index_type": "HNSW", "M": "-1"}, FLOAT, r"param 'M' \(-1\) should be in range \[2, 2048\]"),
        ({"index_type": "HNSW", "M": "2049"}, FLOAT, r"param 'M' \(2049\) should be in range \[2, 2048\]"),
        ({"index_type": "HNSW", "params": '{"M": 16.0}'}, FLOAT, "wrong data type in json"),
        (
            {"index_type": "HNSW", "params": '{"M": true}'},
            FLOAT,
            "invalid integer value, key: 'M', value: 'True'",
        ),
        ({"index_type": "HNSW", "M": "[16]"}, FLOAT, r"invalid integer value, key: 'M', value: '\[16\]'"),
        ({"index_type": "HNSW", "efConstruction": "0"}, FLOAT, r"should be in range \[1, 2147483647\]"),
        (
            {"index_type": "IVF_FLAT", "nlist": "0"},
            FLOAT,
            r"param 'nlist' \(0\) should be in range \[1, 65536\]",
        ),
        ({"index_type": "IVF_FLAT", "nlist": "65537"}, FLOAT, r"should be in range \[1, 65536\]"),
        ({"index_type": "AUTOINDEX", "M": "16"}, FLOAT, "only metric type can be passed when use AutoIndex"),
        ({"M": "16"}, FLOAT, "only metric type can be passed when use AutoIndex"),
        ({"index_type": "HNSV"}, FLOAT, "invalid index type: HNSV"),
        ({"index_type": "hnsw"}, FLOAT, "invalid index type: hnsw"),
        ({"index_type": "BIN_FLAT"}, FLOAT, "data type FloatVector can't build with this index BIN_FLAT"),
        ({"index_type": "HNSW"}, BINARY, "data type BinaryVector can't build with this index HNSW"),
        (
            {"index_type": "HNSW", "metric_type": "HAMMING"},
            FLOAT,
            "float vector index does not support metric type: HAMMING",
        ),
        (
            {"index_type": "BIN_FLAT", "metric_type": "L2"},
            BINARY,
            "binary vector index does not support metric type: L2",
        ),
        ({"index_type": "FLAT", "metric_type": "l2"}, FLOAT, "does not support metric type: l2"),
        ({"index_type": "HNSW", "params": "{M: 3}"}, FLOAT, "'params' is not JSON"),
        ({"index_type": "HNSW", "params": "[1]"}, FLOAT, "should be a JSON object"),
        ({"params": "[" * 100_000}, FLOAT, "'params' is not JSON"),
        ({"params": r'{"index_type": "\ud800"}'}, FLOAT, "'params' is not JSON"),
        (
            {"index_type": "HNSW", "mmap.enabled": "yes"},
            FLOAT,
            "invalid mmap type params: invalid mmap.enabled value: yes, expected: true, false",
        ),
        (
            {"index_type": "HNSW", "metric_type": "L3"},
            DataType.INT8_VECTOR,
            "int vector index does not support metric",
        ),
    ],
)
def test_build_parameters_that_are_refused(sent: dict[str, str], data_type: DataType, text: str) -> None:
    with pytest.raises(InvalidParameter, match=text):
        resolve_index(sent, data_type, DIM)


@pytest.mark.parametrize("name", ["GPU_CAGRA", "GPU_IVF_PQ", "AISAQ"])
def test_index_types_of_the_reference_that_are_not_built_here(name: str) -> None:
    with pytest.raises(NotSupported, match=f"invalid index type: {name}.*not supported.*FLAT, IVF_FLAT"):
        resolve_index({"index_type": name}, FLOAT, DIM)


@pytest.mark.parametrize(
    ("sent", "expected"),
    [
        ({"index_type": "IVF_PQ", "m": "4"}, {"nlist": 128, "m": 4, "nbits": 8}),
        ({"index_type": "IVF_PQ", "m": "16", "nbits": "24"}, {"nlist": 128, "m": 16, "nbits": 24}),
        ({"index_type": "SCANN"}, {"nlist": 128, "with_raw_data": True, "sub_dim": 2}),
        ({"index_type": "SCANN", "with_raw_data": "False"}, {"with_raw_data": False}),
        ({"index_type": "IVF_RABITQ", "params": '{"refine": true}'}, {"refine": True, "refine_type": "FP32"}),
        ({"index_type": "IVF_RABITQ", "refine": "true", "refine_type": "sq8"}, {"refine_type": "SQ8"}),
        ({"index_type": "HNSW_SQ"}, {"sq_type": "SQ8", "M": 16, "efConstruction": 200, "refine": False}),
        ({"index_type": "HNSW_SQ", "sq_type": "sq4u"}, {"sq_type": "SQ4U"}),
        ({"index_type": "HNSW_PQ", "m": "8"}, {"m": 8, "nbits": 8}),
        ({"index_type": "HNSW_PRQ"}, {"m": 2, "nrq": 2, "nbits": 8}),
        ({"index_type": "DISKANN"}, {"max_degree": 48, "search_list_size": 128}),
    ],
)
def test_build_parameters_of_the_kinds_of_codes(sent: dict[str, str], expected: dict[str, object]) -> None:
    params = resolve_index(sent, FLOAT, DIM).params
    assert {name: params[name] for name in expected} == expected


@pytest.mark.parametrize(
    ("sent", "text"),
    [
        ({"index_type": "IVF_PQ"}, "param 'm' not exist in json"),
        (
            {"index_type": "IVF_PQ", "m": "5"},
            r"multiple of the number of subquantizers \(m\)\. Dimension: 16, m: 5",
        ),
        ({"index_type": "IVF_PQ", "m": "0"}, r"param 'm' \(0\) should be in range \[1, 65536\]"),
        ({"index_type": "IVF_PQ", "m": "4", "nbits": "25"}, r"'nbits' \(25\) should be in range \[1, 24\]"),
        ({"index_type": "SCANN", "sub_dim": "3"}, "multiple of sub_dim. Dimension:16, sub_dim:3"),
        ({"index_type": "SCANN", "with_raw_data": "maybe"}, "'with_raw_data' .* should be a boolean"),
        (
            {"index_type": "SCANN", "params": '{"with_raw_data": 1}'},
            r"'with_raw_data' \(1\) should be a boolean",
        ),
        ({"index_type": "HNSW_SQ", "sq_type": "SQ7"}, "invalid scalar quantizer type"),
        ({"index_type": "HNSW_SQ", "params": '{"sq_type": 8}'}, r"'sq_type' \(8\) should be a string"),
        ({"index_type": "HNSW_SQ", "refine_type": "INT8"}, "invalid refine type : INT8, optional types are"),
        ({"index_type": "HNSW_PQ"}, "Dimension: 16, m: 32"),
        ({"index_type": "HNSW_PRQ", "nrq": "17"}, r"'nrq' \(17\) should be in range \[1, 16\]"),
        (
            {"index_type": "IVF_RABITQ_FASTSCAN", "refine_type": "SQ8"},
            "IVF_RABITQ_FASTSCAN does not support refine_type SQ8: use FP32 or FLAT",
        ),
        ({"index_type": "IVF_RABITQ", "nlist": "x"}, "invalid integer value, key: 'nlist', value: 'x'"),
        ({"index_type": "DISKANN", "max_degree": "0"}, r"should be in range \[1, 2048\]"),
    ],
)
def test_build_parameters_of_the_kinds_of_codes_that_are_refused(sent: dict[str, str], text: str) -> None:
    with pytest.raises(InvalidParameter, match=text):
        resolve_index(sent, FLOAT, DIM)


@pytest.mark.parametrize("kind", ["FLAT", "IVF_FLAT", "IVF_SQ8"])
def test_clients_build_signed_bytes_by_hnsw_only(kind: str) -> None:
    spec = resolve_index({"index_type": kind}, DataType.INT8_VECTOR, DIM)
    with pytest.raises(
        InvalidParameter, match=f"data type Int8Vector can't build with this index {kind}: invalid"
    ):
        check_choice(spec)
    for name in ("HNSW", "AUTOINDEX"):
        check_choice(resolve_index({"index_type": name}, DataType.INT8_VECTOR, DIM))
    for name in ("HNSW_SQ", "IVF_PQ", "DISKANN", "SCANN"):
        with pytest.raises(
            InvalidParameter, match=f"Int8Vector can't build with this index {name}.*use one of HNSW, A"
        ):
            resolve_index({"index_type": name}, DataType.INT8_VECTOR, DIM)


@pytest.mark.parametrize("metric", ["SUBSTRUCTURE", "SUPERSTRUCTURE"])
def test_lists_of_bits_have_no_matching_metrics(metric: str) -> None:
    assert resolve_index({"index_type": "BIN_FLAT", "metric_type": metric}, BINARY, 64).metric_type == metric
    with pytest.raises(InvalidParameter, match=rf"metric type {metric} not found.*\[HAMMING JACCARD\]"):
        resolve_index({"index_type": "BIN_IVF_FLAT", "metric_type": metric}, BINARY, 64)


def test_another_dimension_is_refused() -> None:
    with pytest.raises(InvalidDimension, match="dimension in schema: 16, dimension: 8"):
        resolve_index({"index_type": "FLAT", "dim": "8"}, FLOAT, DIM)


@pytest.mark.parametrize("sent", [{}, {"index_type": ""}, {"index_type": "AUTOINDEX"}])
def test_autoindex(sent: dict[str, str]) -> None:
    floats, bits = resolve_index(sent, FLOAT, DIM), resolve_index(sent, BINARY, 64)
    assert (floats.index_type, floats.metric_type) == ("HNSW", Metric.COSINE)
    assert (bits.index_type, bits.metric_type) == ("BIN_FLAT", Metric.HAMMING)
    assert floats.declared_type == bits.declared_type == "AUTOINDEX"
    assert resolve_index(sent | {"metric_type": "L2"}, FLOAT, DIM).metric_type == Metric.L2


@pytest.mark.parametrize(("kind", "metric"), CASES)
@pytest.mark.parametrize("memory_mapped", [False, True])
def test_resolved_parameters_read_back(kind: str, metric: str, memory_mapped: bool) -> None:
    spec = spec_for(kind, metric, **BUILD_PARAMS.get(kind, {}), **{"mmap.enabled": memory_mapped})
    again = resolve_index(json.loads(json.dumps(spec.flattened())), spec.data_type, spec.dim)
    assert again.flattened() == spec.flattened()
    assert (again.index_type, again.metric_type, again.params) == (
        spec.index_type,
        spec.metric_type,
        spec.params,
    )
    assert again.memory_mapped == memory_mapped


def test_brute_force_is_a_spec_of_its_own() -> None:
    assert brute_force(BINARY, 64, Metric.JACCARD).index_type == "BIN_FLAT"
    assert brute_force(FLOAT, 16, Metric.IP).index_type == "FLAT"


@pytest.mark.parametrize(
    ("kind", "sent", "expected"),
    [
        ("HNSW", {}, SearchParams(ef=64)),
        ("HNSW", {"ef": 10}, SearchParams(ef=10)),
        ("HNSW", {"ef": "32"}, SearchParams(ef=32)),
        ("HNSW", {"ef": 2**31 - 1}, SearchParams(ef=2**31 - 1)),
        ("HNSW", {"nprobe": 10, "search_list": 5, "reorder_k": "x"}, SearchParams(ef=64)),
        ("HNSW", {"page_retain_order": True, "metric_type": "L2"}, SearchParams(ef=64)),
        ("AUTOINDEX", {"level": 3}, SearchParams(ef=192)),
        ("AUTOINDEX", {"ef": 100}, SearchParams(ef=100)),
        ("IVF_FLAT", {}, SearchParams(nprobe=8)),
        ("IVF_FLAT", {"nprobe": 65536, "ef": 1}, SearchParams(nprobe=65536)),
        ("FLAT", {"ef": -3, "nprobe": "many"}, SearchParams()),
        ("DISKANN", {}, SearchParams(search_list=64)),
        ("DISKANN", {"search_list": "20"}, SearchParams(search_list=20)),
        (
            "IVF_RABITQ",
            {"rbq_query_bits": 4, "refine_k": "2.5"},
            SearchParams(nprobe=8, rbq_query_bits=4, refine_k=2.5),
        ),
    ],
)
def test_search_parameters(kind: str, sent: dict[str, object], expected: SearchParams) -> None:
    assert resolve_search(spec_for(kind, "L2"), sent, 10) == expected


@pytest.mark.parametrize(
    ("kind", "effort"), [("HNSW", "ef"), ("DISKANN", "search_list"), ("SCANN", "reorder_k")]
)
def test_a_range_and_a_page_may_have_less_effort_than_hits(kind: str, effort: str) -> None:
    for more in ({"radius": 5.0}, {"radius": 5.0, "range_filter": 1.0}, {ITERATOR_PAGE: True}):
        found = resolve_search(spec_for(kind, "L2", **BUILD_PARAMS.get(kind, {})), {effort: 3, **more}, 10)
        assert found.number(effort, 0) == 10
    with pytest.raises(InvalidParameter, match=r"\(3\) should be larger than k\(10\)"):
        resolve_search(spec_for(kind, "L2", **BUILD_PARAMS.get(kind, {})), {effort: 3}, 10)


def test_the_default_ef_grows_with_k() -> None:
    assert resolve_search(spec_for("HNSW", "L2"), {}, 500) == SearchParams(ef=1000)


@pytest.mark.parametrize(
    ("kind", "sent", "text"),
    [
        ("HNSW", {"ef": 5}, r"ef\(5\) should be larger than k\(10\)"),
        ("HNSW", {"ef": -1}, r"param 'ef' \(-1\) should be in range \[1, 2147483647\]"),
        ("HNSW", {"ef": 32.0}, r"param 'ef' \(32.0\) should be integer"),
        ("HNSW", {"ef": True}, r"param 'ef' \(true\) should be integer"),
        ("HNSW", {"ef": None}, r"param 'ef' \(null\) should be integer"),
        ("HNSW", {"ef": [32]}, r"param 'ef' \(\[32\]\) should be integer"),
        ("AUTOINDEX", {"level": 6}, r"param 'level' \(6\) should be in range \[1, 5\]"),
        ("IVF_FLAT", {"nprobe": 0}, r"param 'nprobe' \(0\) should be in range \[1, 65536\]"),
        ("SCANN", {"reorder_k": 9}, r"reorder_k\(9\) should be larger than k\(10\)"),
        ("SCANN", {"reorder_k": 0}, r"param 'reorder_k' \(0\) should be in range \[1, 2147483647\]"),
        ("DISKANN", {"search_list": 9}, r"search_list_size\(9\) should be larger than k\(10\)"),
        ("DISKANN", {"search_list": 0}, r"'search_list_size' \(0\) should be in range \[1, 2147483647\]"),
        ("IVF_RABITQ", {"rbq_query_bits": 9}, r"param 'rbq_query_bits' \(9\) should be in range \[0, 8\]"),
        (
            "IVF_RABITQ_FASTSCAN",
            {"rbq_query_bits": 4},
            r"param 'rbq_query_bits' \(4\) should be in range \[0, 0\]",
        ),
        ("HNSW_SQ", {"refine_k": 0}, r"param 'refine_k' \(0\) should be in range \[1.000000"),
        ("HNSW_SQ", {"refine_k": "x"}, "invalid float value, key: 'refine_k', value: 'x'"),
        ("HNSW_SQ", {"ef": 9}, r"ef\(9\) should be larger than k\(10\)"),
        ("FLAT", {"metric_type": "IP"}, r"metric type not match: .*\[expected=L2\]\[actual=IP\]"),
        ("FLAT", {"page_retain_order": 7}, "invalid boolean value"),
        ("FLAT", {"radius": "wide"}, r"param 'radius' \(\"wide\"\) should be a number"),
        ("FLAT", {"radius": True}, r"param 'radius' \(true\) should be a number"),
        ("FLAT", {"radius": float("nan")}, "should be a number"),
        ("FLAT", {"radius": 1, "range_filter": "x"}, "param 'range_filter'"),
        (
            "FLAT",
            {"range_filter": 1},
            "range_filter requires radius to be set; range_filter alone is not a valid",
        ),
    ],
)
def test_search_parameters_that_are_refused(kind: str, sent: dict[str, object], text: str) -> None:
    with pytest.raises(InvalidParameter, match=text):
        resolve_search(spec_for(kind, "L2"), sent, 10)


@pytest.mark.parametrize("metric", ["L2", "IP", "COSINE", "HAMMING", "JACCARD"])
def test_radius_and_range_filter_stand_in_the_metrics_order(metric: str) -> None:
    spec = spec_for("AUTOINDEX", metric)
    near, far = (0.9, 0.1) if Metric(metric).bigger_is_better else (0.1, 0.9)
    window = resolve_search(spec, {"radius": far, "range_filter": near}, 10).window
    assert window is not None
    assert (window.radius, window.range_filter) == (far, near)
    for wrong in ({"radius": near, "range_filter": far}, {"radius": far, "range_filter": far}):
        word = "greater" if Metric(metric).bigger_is_better else "less"
        with pytest.raises(
            InvalidParameter, match=rf"metric type \({metric}\), range_filter.* must be {word}"
        ):
            resolve_search(spec, wrong, 10)


def test_bounds_beyond_every_score_are_bounds_at_the_end_of_the_range() -> None:
    window = resolve_search(spec_for("FLAT", "L2"), {"radius": 1e300}, 10).window
    assert window is not None
    assert window.radius == pytest.approx(3.4028235e38)


def test_at_least_one_hit_is_asked_for() -> None:
    with pytest.raises(InvalidTopK, match=r"topk \[0\] is invalid"):
        resolve_search(spec_for("FLAT", "L2"), {}, 0)


@pytest.mark.parametrize(
    ("sent", "ignored"),
    [
        ({"index_type": "FLAT", "nlist": "16"}, ("nlist",)),
        ({"index_type": "FLAT", "params": '{"nlist": 16}'}, ("nlist",)),
        ({"index_type": "IVF_FLAT", "M": "16", "nlist": "4"}, ("M",)),
        ({"index_type": "HNSW", "collection_name": "c", "metric_type": "L2"}, ("collection_name",)),
        ({"index_type": "HNSW", "M": "8", "dim": "16", "mmap.enabled": "true"}, ()),
        ({"metric_type": "L2"}, ()),
    ],
)
def test_build_parameters_that_no_index_of_the_type_knows_are_ignored(
    sent: dict[str, str], ignored: tuple[str, ...]
) -> None:
    spec = resolve_index(sent, FLOAT, 16)
    assert ignored_params(sent, spec) == ignored
    known = {name: value for name, value in sent.items() if name not in ignored and name != "params"}
    assert resolve_index(known, FLOAT, 16) == spec


def test_search_parameters_that_no_index_knows_are_ignored() -> None:
    spec = resolve_index({"index_type": "HNSW", "metric_type": "L2"}, FLOAT, 16)
    assert resolve_search(spec, {"efSearch": 32, "foo": "x"}, 10) == resolve_search(spec, {}, 10)


def test_an_ignored_parameter_is_logged_once_per_kind_of_index(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("elanus.index.ignored._noted", set())
    quiet = structlog.get_config()
    structlog.reset_defaults()
    with structlog.testing.capture_logs() as logs:
        for kind in ("FLAT", "HNSW", "FLAT"):
            note_ignored(kind, ["foo"])
        note_ignored("FLAT", map(str, range(2000)))
    structlog.configure(**quiet)
    assert [(line["kind"], line["parameter"]) for line in logs[:2]] == [("FLAT", "foo"), ("HNSW", "foo")]
    assert len(logs) == 1000
