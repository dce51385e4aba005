"""Build and files: what was saved is loaded, anything else is refused; a build can be stopped."""

from __future__ import annotations

import dataclasses
import json
from pathlib import Path

import faiss
import numpy as np
import pytest
from index_data import CASES, DIM, ROWS, built, clustered, spec_for, vectors_for

from elanus.core.errors import Internal
from elanus.index import RowMask, SearchParams, VectorIndex, Window, build, files, load
from elanus.index.files import CACHE_LINE_BYTES, DamagedIndexFile
from elanus.index.hnsw import PlainHnsw

PARAMS = SearchParams(ef=64, nprobe=4)


@pytest.mark.parametrize(("kind", "metric"), CASES)
@pytest.mark.parametrize("memory_mapped", [False, True])
def test_a_loaded_index_answers_as_the_one_that_was_saved(
    kind: str, metric: str, memory_mapped: bool, tmp_path: Path
) -> None:
    index = built(kind, metric)
    index.save(tmp_path / "index")
    loaded = load(tmp_path / "index", dataclasses.replace(index.spec, memory_mapped=memory_mapped))
    mask = RowMask.from_bool(np.random.default_rng(0).random(ROWS) < 0.4)
    for visible in (None, mask):
        before = index.search(vectors_for(metric)[1], 10, PARAMS, visible)
        after = loaded.search(vectors_for(metric)[1], 10, PARAMS, visible)
        np.testing.assert_array_equal(after.rows, before.rows)
        if kind == "DISKANN":  # rows from a file are scaled before they are compared, others afterwards
            np.testing.assert_allclose(after.distances, before.distances, rtol=1e-6)
        else:
            np.testing.assert_array_equal(after.distances, before.distances)
    assert loaded.rows == ROWS
    on_disk = vectors_for(metric)[0].nbytes if kind == "DISKANN" else 0
    assert loaded.memory_bytes == index.memory_bytes - on_disk
    assert loaded.has_raw_vectors == index.has_raw_vectors


CODES_ONLY = {
    "IVF_PQ": {"nlist": 16, "m": 8, "nbits": 6},
    "IVF_RABITQ": {"nlist": 16},
    "IVF_RABITQ_FASTSCAN": {"nlist": 16},
    "SCANN": {"nlist": 16, "with_raw_data": False},
    "HNSW_SQ": {"M": 8, "sq_type": "SQ6"},
    "HNSW_PQ": {"M": 8, "m": 8, "nbits": 6},
    "HNSW_PRQ": {"M": 8, "m": 4, "nbits": 4},
    "IVF_SQ8": {"nlist": 16, "refine": True, "refine_type": "SQ6"},
    "HNSW_SQ refined": {"M": 8, "sq_type": "SQ4U", "refine": True, "refine_type": "BF16"},
}


@pytest.mark.parametrize("metric", ["L2", "IP", "COSINE"])
@pytest.mark.parametrize("case", CODES_ONLY)
@pytest.mark.parametrize("memory_mapped", [False, True])
def test_an_index_of_codes_answers_after_a_load_too(
    case: str, metric: str, memory_mapped: bool, tmp_path: Path
) -> None:
    """Under every mask and in every range. Nothing but codes, or rows to refine with that are codes too."""
    spec = spec_for(case.split()[0], metric, **CODES_ONLY[case])
    rows, queries = vectors_for(metric)
    index = build(spec, rows[:900], threads=1)
    index.save(tmp_path / "index")
    loaded = load(tmp_path / "index", dataclasses.replace(spec, memory_mapped=memory_mapped))
    assert isinstance(index, VectorIndex)
    assert isinstance(loaded, VectorIndex)
    assert not loaded.has_raw_vectors
    assert loaded.memory_bytes == index.memory_bytes
    middle = float(np.median(index.search(queries[:1], 20, SearchParams()).distances))
    window = Window(middle, None, spec.metric_type.bigger_is_better)
    some = RowMask.from_bool(np.random.default_rng(0).random(900) < 0.4)
    few = RowMask.from_bool(np.arange(900) % 300 == 7)
    for visible in (None, some, few):
        for params in (SearchParams(), SearchParams(window=window), SearchParams(window=window, exact=True)):
            before = index.search(queries, 10, params, visible)
            after = loaded.search(queries, 10, params, visible)
            np.testing.assert_array_equal(after.rows, before.rows)
            np.testing.assert_array_equal(after.distances, before.distances)
            if params.window is None:
                assert (after.rows >= 0).sum(axis=1).tolist() == [
                    min(10, 900 if visible is None else visible.count)
                ] * 12


@pytest.mark.parametrize(("kind", "metric"), CASES)
def test_vectors_come_back_bit_for_bit_where_the_index_holds_them(kind: str, metric: str) -> None:
    index = built(kind, metric)
    wanted = np.array([17, 0, ROWS - 1, 17])
    if kind == "IVF_SQ8":
        assert not index.has_raw_vectors
        with pytest.raises(Internal, match="IVF_SQ8 does not hold its vectors"):
            index.reconstruct(wanted)
        return
    assert index.has_raw_vectors
    vectors = index.reconstruct(wanted)
    assert vectors.dtype == vectors_for(metric)[0].dtype
    np.testing.assert_array_equal(vectors, vectors_for(metric)[0][wanted])


@pytest.mark.parametrize(("kind", "metric"), CASES)
def test_memory_covers_the_vectors_once(kind: str, metric: str) -> None:
    stored = vectors_for(metric)[0].nbytes // (4 if kind == "IVF_SQ8" else 1)
    assert stored <= built(kind, metric).memory_bytes
    if kind == "FLAT":
        assert built(kind, metric).memory_bytes <= stored + 4 * ROWS


def test_vectors_that_cosine_cannot_give_back_are_not_offered(tmp_path: Path) -> None:
    rows = vectors_for("COSINE")[0][:60].copy()
    rows[5] = 1e-25
    rows[5, 0] = 1e20
    index = build(spec_for("HNSW", "COSINE"), rows, threads=1)
    index.save(tmp_path / "index")
    assert not index.has_raw_vectors
    assert not load(tmp_path / "index", index.spec).has_raw_vectors


def test_the_file_of_another_index_is_refused(tmp_path: Path) -> None:
    built("HNSW", "L2").save(tmp_path / "index")
    for other in (spec_for("HNSW", "IP"), spec_for("IVF_FLAT", "L2")):
        with pytest.raises(Internal, match="holds"):
            load(tmp_path / "index", other)


@pytest.mark.parametrize("kept", [0, 5, 0.5, 0.99])
def test_a_file_that_was_not_written_to_its_end_is_refused(kept: float, tmp_path: Path) -> None:
    index = built("HNSW", "COSINE")
    index.save(tmp_path / "index")
    whole = (tmp_path / "index").read_bytes()
    (tmp_path / "index").write_bytes(whole[: int(len(whole) * kept if kept < 1 else kept)])
    with pytest.raises(Internal, match="no footer"):
        load(tmp_path / "index", index.spec)


@pytest.mark.parametrize(("kind", "metric"), CASES)
@pytest.mark.parametrize("memory_mapped", [False, True])
def test_one_changed_byte_anywhere_is_refused(
    kind: str, metric: str, memory_mapped: bool, tmp_path: Path
) -> None:
    index = built(kind, metric)
    path = tmp_path / "index"
    index.save(path)
    spec = dataclasses.replace(index.spec, memory_mapped=memory_mapped)
    data = path.read_bytes()
    drawn = np.random.default_rng(1).integers(0, len(data), 15)
    for place in (0, *drawn, *range(len(data) - 30, len(data))):
        damaged = bytearray(data)
        damaged[place] ^= 0x10
        path.write_bytes(damaged)
        with pytest.raises(DamagedIndexFile, match=str(path)):
            load(path, spec)
    path.write_bytes(data)
    load(path, spec)


def of_format_1(data: bytes) -> bytes:
    """The file as releases before the checksum wrote it."""
    length = int.from_bytes(data[-16:-8], "little")
    content, footer = data[: -24 - length], json.loads(data[-24 - length : -24])
    text = json.dumps(footer | {"format": 1}).encode()
    return content + text + len(text).to_bytes(8, "little") + b"ELANUSIX"


@pytest.mark.parametrize(
    ("kind", "metric"), [("FLAT", "L2"), ("HNSW", "COSINE"), ("BIN_IVF_FLAT", "HAMMING")]
)
def test_files_from_before_the_checksum_are_read(kind: str, metric: str, tmp_path: Path) -> None:
    index = built(kind, metric)
    path = tmp_path / "index"
    index.save(path)
    old = of_format_1(path.read_bytes())
    path.write_bytes(old)
    queries = vectors_for(metric)[1]
    found = load(path, index.spec).search(queries, 10, PARAMS)
    np.testing.assert_array_equal(found.rows, index.search(queries, 10, PARAMS).rows)
    path.write_bytes(old.replace(b'{"format"', b'["format"'))
    with pytest.raises(DamagedIndexFile, match="damaged footer"):
        load(path, index.spec)
    path.write_bytes(old.replace(b'{"format": 1', b'{"format": 2'))
    with pytest.raises(DamagedIndexFile, match="another format"):
        load(path, index.spec)


def test_damage_in_the_graph_of_an_old_file_is_refused(tmp_path: Path) -> None:
    index = built("HNSW", "L2")
    path = tmp_path / "index"
    index.save(path)
    path.write_bytes(b"nope" + of_format_1(path.read_bytes())[4:])
    with pytest.raises(DamagedIndexFile, match="cannot be read"):
        load(path, index.spec)


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="needs a device that is always full")
@pytest.mark.parametrize(
    ("kind", "metric"), [("FLAT", "L2"), ("HNSW", "COSINE"), ("BIN_IVF_FLAT", "HAMMING")]
)
def test_a_full_disk_is_an_os_error(kind: str, metric: str) -> None:
    with pytest.raises(OSError):
        built(kind, metric).save(Path("/dev/full"))


@pytest.mark.parametrize("kind", ["FLAT", "IVF_FLAT", "HNSW"])
def test_progress_ends_at_one(kind: str) -> None:
    seen: list[float] = []
    build(spec_for(kind, "L2"), vectors_for("L2")[0], threads=1, progress=seen.append)
    assert seen == sorted(seen)
    assert seen[-1] == 1.0


def test_progress_may_stop_a_build_between_chunks() -> None:
    rows, _ = clustered(20_000, DIM, 4, seed=0)
    spec = spec_for("HNSW", "L2", M=4, efConstruction=8)
    seen: list[float] = []

    class Stop(Exception):
        pass

    def progress(share: float) -> None:
        seen.append(share)
        if share > 0.5:
            raise Stop

    with pytest.raises(Stop):
        build(spec, rows, threads=1, progress=progress)
    assert len(seen) == 2
    assert seen[-1] < 1.0


def test_small_segments_get_fewer_lists_instead_of_an_error() -> None:
    for rows in (1, 38, 90):
        index = build(spec_for("IVF_FLAT", "L2", nlist=1024), vectors_for("L2")[0][:rows], threads=1)
        assert (index.search(vectors_for("L2")[1], rows, SearchParams(nprobe=1)).rows >= 0).all()


@pytest.mark.parametrize("shape", [(0, DIM), (5, DIM + 1), (5,)])
def test_nothing_is_built_from_arrays_of_another_shape(shape: tuple[int, ...]) -> None:
    with pytest.raises(ValueError, match="cannot be built from an array of shape"):
        build(spec_for("FLAT", "L2"), np.zeros(shape, np.float32), threads=1)


@pytest.mark.parametrize("dim", [16, 48])
def test_the_rows_of_a_graph_begin_at_lines_of_the_cache(dim: int, tmp_path: Path) -> None:
    """They are in memory of the process, which the index keeps, and no longer in the file."""
    rows = np.random.default_rng(0).random((ROWS, dim), dtype=np.float32)
    spec = dataclasses.replace(spec_for("HNSW", "L2"), dim=dim)
    build(spec, rows, threads=1).save(tmp_path / "index")
    loaded = load(tmp_path / "index", spec)
    assert isinstance(loaded, PlainHnsw)
    graph = loaded.graph
    storage = faiss.downcast_index(graph.storage)
    stored = faiss.rev_swig_ptr(storage.get_xb(), ROWS * dim)
    assert stored.ctypes.data % CACHE_LINE_BYTES == 0
    assert str(tmp_path) not in Path("/proc/self/maps").read_text()
    np.testing.assert_array_equal(stored.reshape(ROWS, dim), rows)


def test_a_graph_whose_file_is_too_short_is_damaged(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    index = built("HNSW", "L2")
    index.save(tmp_path / "index")
    monkeypatch.setattr(files, "_faiss_bytes", lambda path, footer: path.stat().st_size + 1)
    with pytest.raises(DamagedIndexFile, match="shorter than its footer says"):
        load(tmp_path / "index", index.spec)
