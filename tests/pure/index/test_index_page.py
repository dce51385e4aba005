"""The page of index types: every type and parameter is on it, and its bytes per row are those of the code."""

from __future__ import annotations

import re
from pathlib import Path

import numpy as np
import pytest

from elanus.core.types import KINDS as DATA_TYPES
from elanus.core.types import DataType
from elanus.index import build, resolve_index
from elanus.index.kinds import KINDS as ALL_KINDS

PAGE = (Path(__file__).parents[3] / "docs" / "index-types.md").read_text()
ROWS = {match[1]: match for match in re.finditer(r"^\| `(\w+)` \| (.+) \| (.+) \| (.+) \|$", PAGE, re.M)}
KINDS = {
    name: kind
    for name, kind in ALL_KINDS.items()
    if any(DATA_TYPES[data_type].vector is not None for data_type in kind.on)
}
"""Those of vectors: the others have a page of their own."""
SMALL, LARGE, DIM = 1000, 3000, 64
BUILT: dict[str, dict[str, str]] = {
    "IVF_FLAT": {"nlist": "8"},
    "IVF_SQ8": {"nlist": "8"},
    "IVF_PQ": {"nlist": "8", "m": "16", "nbits": "4"},
    "IVF_RABITQ": {"nlist": "8"},
    "IVF_RABITQ_FASTSCAN": {"nlist": "8"},
    "SCANN": {"nlist": "8"},
    "HNSW": {"efConstruction": "10"},
    "HNSW_SQ": {"efConstruction": "10", "sq_type": "SQ6"},
    "HNSW_PQ": {"efConstruction": "10", "m": "16", "nbits": "4"},
    "HNSW_PRQ": {"efConstruction": "10", "m": "4", "nbits": "3"},
    "BIN_IVF_FLAT": {"nlist": "8"},
    "DISKANN": {"search_list_size": "10"},
    "MINHASH_LSH": {"metric_type": "MHJACCARD", "mh_lsh_band": "2"},
}
"""Parameters with which what does not grow with the rows is the same for few rows and many."""


def test_every_kind_and_parameter_is_on_the_page() -> None:
    assert set(ROWS) == set(KINDS)
    for kind in KINDS.values():
        if kind.name.startswith("SPARSE"):
            continue
        fields = {DATA_TYPES[data_type].data_type.name.removesuffix("_VECTOR") for data_type in kind.on}
        fields -= {data_type.name.removesuffix("_VECTOR") for data_type in kind.withheld_from}
        assert set(ROWS[kind.name][2].split(", ")) == fields
        form = DATA_TYPES[next(iter(kind.on))].vector
        assert form is not None
        assert ROWS[kind.name][3].split(", ") == [str(m) for m in kind.metrics or form.metrics]
        for name in (*kind.build_params, *kind.search_params):
            assert f"`{name}`" in PAGE, name


@pytest.mark.slow
@pytest.mark.parametrize(
    "name", [name for name in KINDS if not name.startswith("SPARSE") and name != "DISKANN"]
)
@pytest.mark.parametrize("data_type", [DataType.FLOAT_VECTOR, DataType.INT8_VECTOR])
def test_the_bytes_per_row(name: str, data_type: DataType) -> None:
    binary = name.startswith(("BIN", "MINHASH"))
    if data_type not in KINDS[name].on and not binary:
        data_type = DataType.FLOAT16_VECTOR
    sent = {"index_type": name, "metric_type": "HAMMING" if binary else "L2"} | BUILT.get(name, {})
    spec = resolve_index(sent, DataType.BINARY_VECTOR if binary else data_type, DIM)
    vectors = np.random.default_rng(1).integers(0, 100, (LARGE, spec.form.width(DIM))).astype(spec.form.dtype)
    small, large = (build(spec, vectors[:rows], threads=1).memory_bytes for rows in (SMALL, LARGE))
    names = {**spec.params, "d": DIM, "w": spec.form.row_bytes(DIM), "bits": 6}
    said = eval(ROWS[name][4].strip("`"), {}, names)
    assert (large - small) / (LARGE - SMALL) == pytest.approx(said, rel=0.03)
