"""A build that cannot fit into the memory of a task is refused, not killed."""

from __future__ import annotations

import resource
from dataclasses import replace
from pathlib import Path

import pytest
from fakes import schema
from test_index_build import plan, store

from elanus.core.errors import InsufficientMemory
from elanus.core.schema import DataType, FieldSchema
from elanus.index import resolve_field_index
from elanus.index.sizes import build_bytes_min
from elanus.pipeline import index_build
from elanus.pipeline.index_build import IndexBuildPlan, build_index_file
from elanus.pipeline.task_memory import memory_limit_bytes, require_memory
from elanus.pipeline.worker import may_pass
from elanus.storage.local import LocalStore

GB = 1 << 30
__all__ = ["plan", "store"]


def vectors(dim: int) -> FieldSchema:
    return replace(schema().field("v0"), data_type=DataType.FLOAT_VECTOR, dim=dim)


@pytest.mark.parametrize(
    ("index_type", "fits"), [("FLAT", True), ("HNSW", False), ("IVF_FLAT", False), ("IVF_SQ8", True)]
)
def test_a_segment_of_a_gigabyte_in_a_worker_of_two(index_type: str, fits: bool) -> None:
    spec = resolve_field_index({"index_type": index_type, "metric_type": "L2"}, vectors(768))
    wanted = build_bytes_min(spec, GB // (768 * 4))
    if fits:
        require_memory(wanted, "it", 2 * GB)
        return
    with pytest.raises(InsufficientMemory, match=r"spark\.executor\.pyspark\.memory") as raised:
        require_memory(wanted, "it", 2 * GB)
    assert not may_pass(raised.value), "Spark does not try it again"


def test_a_build_that_cannot_fit_reads_nothing(
    plan: IndexBuildPlan, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(index_build, "memory_limit_bytes", lambda: 10)
    empty = LocalStore(tmp_path / "empty")
    with pytest.raises(InsufficientMemory, match="to build FLAT over 6 rows"):
        build_index_file(plan, empty, tmp_path, "a1")


def test_the_limit_is_the_least_of_all(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    cgroup = tmp_path / "memory.max"
    machine = memory_limit_bytes(cgroup)
    assert machine > GB // 8
    cgroup.write_text("max\n")
    assert memory_limit_bytes(cgroup) == machine
    cgroup.write_text("1000000\n")
    assert memory_limit_bytes(cgroup) == 1_000_000
    monkeypatch.setattr(resource, "getrlimit", lambda _: (500_000, 500_000))
    assert memory_limit_bytes(cgroup) == 500_000
