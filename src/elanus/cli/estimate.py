"""`elanus estimate`: memory and disk of a collection and its index, as text or JSON."""

from __future__ import annotations

from collections.abc import Iterator

from rich.console import Console

from elanus.cli.columns import show
from elanus.cli.status import size
from elanus.core.estimate import Estimate
from elanus.index import IndexSpec


def show_estimate(spec: IndexSpec, found: Estimate, replicas: int) -> None:
    """Print the totals, each on a line with what it is."""
    for line in _lines(spec, found, replicas):
        show(Console(), line)


def _lines(spec: IndexSpec, found: Estimate, replicas: int) -> Iterator[str]:
    params = "".join(f", {name}={value}" for name, value in spec.params.items())
    dim = f" of {spec.dim} dimensions" if spec.dim else ""
    yield f"{found.rows:,} rows of {spec.data_type.name}{dim} in {found.segments:,} segments"
    yield f"index: {spec.index_type}, {spec.metric_type}{params}"
    yield f"memory to load: {size(found.load_bytes)} in all query nodes, replicas: {replicas}"
    yield f"memory of the index: {size(found.index_memory_bytes)} in each replica"
    if found.node_disk_bytes:
        yield f"disk of query nodes: {size(found.node_disk_bytes)}"
    parts = f"{size(found.insert_log_bytes)} of rows, {size(found.index_file_bytes)} of index files"
    yield f"object store: {size(found.object_bytes)} ({parts})"
