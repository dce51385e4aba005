"""How the searches of several serving processes add up."""

from __future__ import annotations

import pytest

from benchmarks.serving import Model, Round, search_bytes
from elanus.proxy.wire.stubs import common_pb2, milvus_pb2


def test_processes_that_cost_the_main_one_nothing_add_up() -> None:
    model = Model.of([Round(0.5, 0.5, 0.0), Round(0.4, 0.5, 0.0), Round(9.0, 0.5, 0.0)])
    assert (model.per_s(1), model.per_s(2)) == (2000, 4000)
    assert [model.ratio(n) for n in (1, 4, 16)] == [1, 4, 16]


def test_each_search_elsewhere_takes_its_part_of_the_main_process() -> None:
    model = Model.of([Round(1.0, 1.0, 0.1)])
    assert model.ratio(2) == pytest.approx(1.9), "a tenth of the main processor is gone"
    assert model.ratio(11) == pytest.approx(10), "nothing of it is left"
    assert model.ratio(16) == model.ratio(11), "it is the limit from there on"


def test_the_replayed_search_is_one_that_clients_send() -> None:
    request = milvus_pb2.SearchRequest.FromString(search_bytes())
    group = common_pb2.PlaceholderGroup.FromString(request.placeholder_group)
    assert len(group.placeholders[0].values[0]) == 4 * 32
    assert {pair.key: pair.value for pair in request.search_params}["topk"] == "10"
    assert request.use_default_consistency
