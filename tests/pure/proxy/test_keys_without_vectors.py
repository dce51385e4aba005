"""Searches by primary keys of rows that have no vector: such a query finds nothing, and is no error."""

from __future__ import annotations

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pytest
from read_bench import Patience
from test_hybrid import ROWS, HybridBench, TableNodes

from elanus.api.querynode import NodeQuery
from elanus.core.grouping import Grouping
from elanus.core.sparse import NO_INDEX, SparseRows, indices_of, paired
from elanus.core.types import VECTOR_FORMS
from elanus.core.vectors import Space, VectorForm
from elanus.proxy.verbs.node_searches import queries_of

WITHOUT = (2, 5)
ONE_PAIR = SparseRows(np.array([0, 1]), paired(np.array([7]), np.array([0.5])))


class SomeVectors(TableNodes):
    """The rows with the keys 2 and 5 have no vector."""

    def query(self, request: NodeQuery, patience: Patience) -> dict[str, pa.Array]:
        found = super().query(request, patience)
        lacking = pa.array([key in WITHOUT for key in found["pk"].to_pylist()])
        column = found["v0"]
        nothing = pa.nulls(len(column), column.type)
        return {**found, "v0": pc.if_else(lacking, nothing, column)}


@pytest.fixture
def bench() -> HybridBench:
    bench = HybridBench()
    bench.reads.nodes = SomeVectors()
    return bench


def counts(bench: HybridBench, keys: list[int], **options: object) -> list[int]:
    """How many hits each key finds."""
    ids = pa.array(keys, pa.int64())
    found = bench.search(query_ids=ids, queries=np.empty((0, 0), np.float32), **options)
    assert len(found.ids) == len(found.scores) == len(found.fields["price"]) == found.offsets[-1]
    return np.diff(found.offsets).tolist()


def test_the_others_find_their_neighbors(bench: HybridBench) -> None:
    assert counts(bench, [7, 2, 3, 5]) == [4, 0, 4, 0]
    assert counts(bench, [7, 2, 3], offset=ROWS - 1) == [1, 0, 1]
    assert counts(bench, [2, 7], grouping=Grouping(("pk",))) == [0, 4]


def test_all_without_a_vector_find_nothing(bench: HybridBench) -> None:
    assert counts(bench, [5, 2]) == [0, 0]


@pytest.mark.parametrize("form", VECTOR_FORMS.values(), ids=lambda form: form.engine_name)
def test_vectors_of_every_type_become_queries(form: VectorForm) -> None:
    sent = form.to_column(ONE_PAIR if form.space is Space.SPARSE else np.ones((1, form.width(8)), form.dtype))
    queries = queries_of(form, pa.concat_arrays([sent, pa.nulls(1, sent.type)]))
    assert len(queries) == 2
    if form.space is Space.SPARSE:
        assert [indices_of(pairs).tolist() for pairs in queries] == [[7], [NO_INDEX]]
    else:
        assert (queries[0] != 0).all()
        assert (queries[1] == 0).all()
