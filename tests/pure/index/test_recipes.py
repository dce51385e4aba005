"""The index type FAISS: recipes become kinds of index."""

from __future__ import annotations

import numpy as np
import pytest
from index_data import best, scores, vectors_for

from elanus.core.errors import InvalidParameter, NotSupported
from elanus.core.schema import DataType
from elanus.index import build, resolve_index, resolve_search

DIM, BITS = 16, 64


def recipe(text: str, metric: str = "L2", **more: str) -> dict[str, str]:
    return {"index_type": "FAISS", "metric_type": metric, "faiss_index_name": text, **more}


@pytest.mark.parametrize(
    ("text", "kind", "params"),
    [
        ("Flat", "FLAT", {}),
        ("IVF64,Flat", "IVF_FLAT", {"nlist": 64}),
        ("IVF64,SQ8", "IVF_SQ8", {"nlist": 64, "refine": False}),
        ("IVF8,RaBitQ,RFlat", "IVF_RABITQ", {"nlist": 8, "refine": True}),
        ("IVF64,PQ8x4,RFlat", "IVF_PQ", {"nlist": 64, "m": 8, "nbits": 4, "refine": True}),
        ("IVF64,PQ8", "IVF_PQ", {"nlist": 64, "m": 8, "nbits": 8, "refine": False}),
        ("PQ8x4", "IVF_PQ", {"nlist": 1, "m": 8, "nbits": 4}),
        ("HNSW16,Flat", "HNSW", {"M": 16}),
        ("HNSW", "HNSW", {"M": 32}),
    ],
)
def test_a_recipe_is_a_kind_of_index(text: str, kind: str, params: dict[str, object]) -> None:
    spec = resolve_index(recipe(text), DataType.FLOAT_VECTOR, DIM)
    assert (spec.index_type, spec.declared_type) == (kind, "FAISS")
    assert {name: spec.params[name] for name in params} == params


@pytest.mark.parametrize(("text", "kind"), [("BFlat", "BIN_FLAT"), ("BIVF16", "BIN_IVF_FLAT")])
def test_recipes_of_bits(text: str, kind: str) -> None:
    assert resolve_index(recipe(text, "HAMMING"), DataType.BINARY_VECTOR, BITS).index_type == kind
    with pytest.raises(NotSupported, match="BFlat"):
        resolve_index(recipe("Flat", "HAMMING"), DataType.BINARY_VECTOR, BITS)


@pytest.mark.parametrize("text", ["OPQ16,IVF64,PQ16x4", "IVF64", "nonsense", "Flat,RFlat", "IVF,Flat"])
def test_other_recipes_are_refused(text: str) -> None:
    with pytest.raises(NotSupported, match="IVF64,PQ8x4,RFlat or HNSW16,Flat"):
        resolve_index(recipe(text), DataType.FLOAT_VECTOR, DIM)


def test_what_does_not_fit() -> None:
    with pytest.raises(InvalidParameter, match="faiss_index_name"):
        resolve_index({"index_type": "FAISS", "metric_type": "L2"}, DataType.FLOAT_VECTOR, DIM)
    with pytest.raises(InvalidParameter, match="unknown parameter nlist of the index type FAISS"):
        resolve_index(recipe("IVF64,Flat", nlist="8"), DataType.FLOAT_VECTOR, DIM)
    with pytest.raises(InvalidParameter, match=r"'nlist' \(0\) should be in range"):
        resolve_index(recipe("IVF0,Flat"), DataType.FLOAT_VECTOR, DIM)
    with pytest.raises(InvalidParameter, match="Dimension: 16, m: 5"):
        resolve_index(recipe("PQ5"), DataType.FLOAT_VECTOR, DIM)
    with pytest.raises(InvalidParameter, match="invalid index type: FAISS"):
        resolve_index(recipe("Flat"), DataType.FLOAT16_VECTOR, DIM)


def test_searches_name_parameters_as_faiss_does() -> None:
    graph = resolve_index(recipe("HNSW16,Flat"), DataType.FLOAT_VECTOR, DIM)
    assert resolve_search(graph, {"efSearch": 200}, 10).number("ef", 0) == 200
    assert resolve_search(graph, {"efSearch": 5}, 10).number("ef", 0) == 10
    codes = resolve_index(recipe("IVF64,PQ8x4,RFlat"), DataType.FLOAT_VECTOR, DIM)
    found = resolve_search(codes, {"k_factor": 3, "nprobe": 16}, 10)
    assert (found.ratio("refine_k", 0), found.number("nprobe", 0)) == (3, 16)
    with pytest.raises(InvalidParameter, match="nprobe"):
        resolve_search(codes, {"nprobe": "invalid"}, 10)


@pytest.mark.parametrize("text", ["Flat", "IVF16,Flat", "HNSW16,Flat", "IVF16,PQ8x4,RFlat"])
def test_such_an_index_finds_neighbors(text: str) -> None:
    rows, queries = vectors_for("L2")
    spec = resolve_index(recipe(text), DataType.FLOAT_VECTOR, DIM)
    params = resolve_search(spec, {"nprobe": 16, "efSearch": 64}, 10)
    found = build(spec, rows, threads=1).search(queries, 10, params).rows
    wanted = best(scores(queries, rows, "L2"), 10, "L2")
    recall = np.mean([len(set(a) & set(b)) / 10 for a, b in zip(found, wanted, strict=True)])
    assert recall >= 0.9
