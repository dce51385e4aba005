"""`elanus estimate`: memory, disk and build time of a collection and its index, as text or JSON."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

from rich.console import Console

from elanus.cli.columns import show
from elanus.cli.jobs import jobs_at
from elanus.cli.status import duration, size
from elanus.core.build_speed import PastBuild
from elanus.core.estimate import Estimate
from elanus.core.jobs import JobState
from elanus.index import IndexSpec


def past_builds(base_url: str) -> Iterator[PastBuild]:
    """Yield the finished index builds of the server at that address. Raises `NoAnswer`."""
    for job in jobs_at(base_url.rstrip("/")):
        if job.planned_s and job.state == JobState.FINISHED:
            yield PastBuild(job.index_type, job.planned_s, job.duration_ms / 1000)


def at_speed(found: Estimate, speed: float) -> Estimate:
    """Return the estimate for a server that does ``speed`` seconds of planned work in a second."""
    return replace(found, build_s=round(found.build_s / speed, 1))


def show_estimate(spec: IndexSpec, found: Estimate, replicas: int, builds: int | None = None) -> None:
    """Print the totals, each on a line with what it is. ``builds``: how many past builds the server that
    was asked has reported; None: none was asked."""
    for line in _lines(spec, found, replicas, builds):
        show(Console(), line)


def _lines(spec: IndexSpec, found: Estimate, replicas: int, builds: int | None) -> Iterator[str]:
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
    if found.build_s:
        yield f"index builds: {duration(1000 * found.build_s)} one after the other, {_source(builds)}"


def _source(builds: int | None) -> str:
    if builds:
        return f"by {builds} build{'s' if builds > 1 else ''} of this server"
    asked = "no server asked" if builds is None else "no long build of this server known"
    return f"on one core, with {asked}"
