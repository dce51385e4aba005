"""Scalar indexes: look-ups of filters by themselves, against a scan, and in a search. In this process."""

from __future__ import annotations

import itertools
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping
from functools import partial
from pathlib import Path

import numpy as np
import pyarrow as pa

from benchmarks.dataset import drawn
from benchmarks.metrics import median
from benchmarks.surface.figures import Line, line
from elanus.api.querynode import NodeSearch
from elanus.core.ids import CollectionID, FieldID, PartitionID, SegmentID
from elanus.core.schema import CollectionSchema, DataType, FieldSchema
from elanus.core.timestamps import Timestamp
from elanus.expr import BoundFilter, Indexes, compile_filter
from elanus.index import RowMask, ScalarIndex, SegmentIndex, VectorIndex, build, load, resolve_index
from elanus.querynode.block import Block, ScalarIndexes
from elanus.querynode.search import search
from elanus.querynode.snapshot import Snapshot, SnapshotSegment
from elanus.querynode.vectors import VectorColumn

DIM, TOP_K, EF, COLORS, LITERALS = 128, 10, 64, 64, 100_000
CALLS = 40
SHARES = (0.0001, 0.001, 0.01, 0.03, 0.05, 0.07, 0.1, 0.3, 0.5, 0.9, 0.99, 0.9999)
_VECTOR = FieldID(103)
_SCHEMA = CollectionSchema(
    "scalars",
    (
        FieldSchema(FieldID(100), "id", DataType.INT64, is_primary=True),
        FieldSchema(FieldID(101), "number", DataType.INT64),
        FieldSchema(FieldID(102), "color", DataType.VARCHAR, max_length=10),
        FieldSchema(_VECTOR, "v", DataType.FLOAT_VECTOR, dim=DIM),
    ),
)
_KINDS = {"number": "STL_SORT", "color": "BITMAP"}
_GOLDEN = 0.6180339887498949
Texts = Iterator[str]


def about(rows: int) -> str:
    return (
        f"{rows:,} rows in one segment: different numbers in random order (STL_SORT), {COLORS} colors "
        f"(BITMAP), vectors of {DIM} dimensions (HNSW with M 16, top {TOP_K} at ef {EF}), read from a file. "
        "The parts of the query node are called in one process, without a server. Each call has a filter "
        "that no call before it had, parsed before the clock starts, and ends with the mask that a search "
        "takes. "
        "Searches with and without filters take turns. Times are of the processor, of one thread."
    )


def measure(rows: int, rounds: int, home: Path | None, say: Callable[[str], None]) -> list[Line]:
    """``home`` is not used: nothing is kept."""
    random = np.random.default_rng(5)
    numbers = random.permutation(rows)
    colors = pa.array([f"c{n}" for n in range(COLORS)]).take(pa.array(random.integers(0, COLORS, rows)))
    written = {"id": pa.array(np.arange(rows)), "number": pa.array(numbers), "color": colors}
    columns = {**written, "color": colors.dictionary_encode()}  # as a loaded segment holds it
    say("building the indexes")
    indexes: ScalarIndexes = {
        (name, ()): _scalar_index(name, kind, written[name]) for name, kind in _KINDS.items()
    }
    evaluate = partial(_evaluated, columns, rows)
    found = []
    for label, texts, wanted_us in _LOOKUPS:
        times_us = [_p50_us(evaluate, texts(rows), indexes, CALLS) for _ in range(rounds)]
        found.append(line(f"{label}, µs", times_us, f"≤ {wanted_us}"))
    many_ms = [_p50_us(evaluate, _literals(rows), indexes, 5) / 1e3 for _ in range(rounds)]
    found.append(line(f"in {LITERALS:,} literals, ms", many_ms, "≤ 60"))
    say("comparing with scans")
    found.append(_against_scans(evaluate, rows, indexes, rounds))
    say("building a graph")
    return found + _in_searches(columns, indexes, rows, rounds)


def _scalar_index(name: str, kind: str, column: pa.Array) -> ScalarIndex:
    index = build(resolve_index({"index_type": kind}, _SCHEMA.field(name).data_type, 0), column, 1)
    assert isinstance(index, ScalarIndex)
    return index


def _evaluated(columns: Mapping[str, pa.Array], rows: int, indexes: Indexes, bound: BoundFilter) -> object:
    return RowMask(bound.find(columns, rows, indexes), rows)


def _us(evaluate: Callable[..., object], text: str, indexes: Indexes) -> float:
    """The processor time of one evaluation: the machine may have other work."""
    bound = compile_filter(text, _SCHEMA)
    began_s = time.thread_time()
    evaluate(indexes, bound)
    return 1e6 * (time.thread_time() - began_s)


def _p50_us(evaluate: Callable[..., object], texts: Texts, indexes: Indexes, calls: int) -> float:
    return median([_us(evaluate, text, indexes) for text in itertools.islice(texts, calls)])


def _ranges(share: float, rows: int) -> Texts:
    """Ranges of the numbers that this share of the rows is in, one far from the other."""
    width = max(1, int(share * rows))
    return (f"number >= {first} and number < {first + width}" for first in _spread(rows - width))


def _spread(end: int) -> Iterator[int]:
    """Numbers below ``end``, each far from the one before."""
    return (int(n * _GOLDEN % 1 * end) for n in itertools.count(1))


def _literals(rows: int) -> Texts:
    random = np.random.default_rng(6)
    while True:
        yield f"number in {random.integers(0, rows, LITERALS).tolist()}"


def _equal(rows: int) -> Texts:
    return (f"number == {n}" for n in range(rows))


def _of_three(rows: int) -> Texts:
    return (f'color in ["c{n % 61}", "c{n % 61 + 1}", "c{n % 61 + 3}"]' for n in range(rows))


def _both(rows: int) -> Texts:
    width = rows // 1000
    return (
        f'number >= {n} and number < {n + width} and color == "c{n % COLORS}"' for n in _spread(rows - width)
    )


_LOOKUPS: tuple[tuple[str, Callable[[int], Texts], int], ...] = (
    ("equality, one row", _equal, 60),
    ("range, 1 % of the rows", partial(_ranges, 0.01), 250),
    (f"in 3 of {COLORS} colors", _of_three, 50),
    ("0.1 % of the numbers and one color", _both, 100),
)


def _against_scans(evaluate: Callable[..., object], rows: int, indexes: Indexes, rounds: int) -> Line:
    """The time with indexes by the time without, for ranges of every share: where it is largest."""
    worst = []
    for share in SHARES:
        texts = _ranges(share, rows)
        ratios = []
        for _ in range(rounds):
            pairs = [[_us(evaluate, next(texts), used) for used in ({}, indexes)] for _ in range(9)]
            scan_us, own_us = zip(*pairs, strict=True)
            ratios.append(median(own_us) / median(scan_us))
        worst.append((median(ratios), ratios, share))
    _, ratios, share = max(worst)
    return line(f"with index ÷ scan, at the worst of {len(SHARES)} shares ({share:.2%})", ratios, "≤ 1.1")


def _loaded(index: SegmentIndex) -> VectorIndex:
    """Return the index as a query node has it: read from its file."""
    with tempfile.TemporaryDirectory() as home:
        index.save(Path(home, "index"))
        loaded = load(Path(home, "index"), index.spec)
    assert isinstance(loaded, VectorIndex)
    return loaded


def _in_searches(
    columns: Mapping[str, pa.Array], indexes: ScalarIndexes, rows: int, rounds: int
) -> list[Line]:
    data = drawn(rows, DIM, 200)
    params = {"index_type": "HNSW", "metric_type": "L2", "M": "16", "efConstruction": "60"}
    field = _SCHEMA.field("v")
    spec = resolve_index(params, DataType.FLOAT_VECTOR, DIM)
    graph = _loaded(build(spec, data.train, 1))
    vectors = {_VECTOR: VectorColumn.held(field, graph)}
    block = Block(_SCHEMA, columns, vectors, np.ones(rows, dtype=np.int64), indexes=indexes)
    segment = SnapshotSegment(SegmentID(1), PartitionID(1), True, (block,))
    now = Timestamp(2)
    snapshot = Snapshot(CollectionID(1), _SCHEMA, {_VECTOR: spec}, 1, now, None, (segment,))

    queries = itertools.cycle(data.test)

    def searched_ms(text: str) -> float:
        bound = compile_filter(text, _SCHEMA)
        request = NodeSearch(
            CollectionID(1), (), _VECTOR, next(queries)[None], TOP_K, "L2", {"ef": EF}, bound, ("id",), now
        )
        began_s = time.thread_time()
        search(snapshot, request, 1)
        return 1e3 * (time.thread_time() - began_s)

    def selected_ms(text: str) -> float:
        bound = compile_filter(text, _SCHEMA)
        began_s = time.thread_time()
        selection = block.select(now, bound)
        found_ms = 1e3 * (time.thread_time() - began_s)
        assert selection.mask is not None
        return found_ms

    one, few = _ranges(0.01, rows), _ranges(0.001, rows)
    kinds: tuple[Callable[[], float], ...] = (
        lambda: searched_ms(""),
        lambda: searched_ms(next(one)),
        lambda: searched_ms(next(few)),
        lambda: selected_ms(next(one)),
    )
    for kind in kinds:
        kind()  # to warm up
    turns = [[[kind() for kind in kinds] for _ in range(CALLS)] for _ in range(rounds)]
    middles = [[median(list(times)) for times in zip(*of_round, strict=True)] for of_round in turns]
    plain, percent, tenth, selecting = (list(times) for times in zip(*middles, strict=True))
    rest = [f - s - p for p, f, s in zip(plain, percent, selecting, strict=True)]
    return [
        line("search without a filter, ms", plain),
        line("search under a new filter of 1 %, ms", percent),
        line("what that filter adds, ms", [f - p for p, f in zip(plain, percent, strict=True)], "≤ 0.15"),
        line("of this: the filter's rows, as a mask, ms", selecting),
        line(f"of this: {rows // 100:,} rows compared, not a walk, ms", rest),
        line(
            "what a new filter of 0.1 % adds, ms",
            [f - p for p, f in zip(plain, tenth, strict=True)],
            "≤ 0.15",
        ),
    ]
