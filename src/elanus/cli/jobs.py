"""`elanus jobs`: the job ledger as a table, the history of one job, and a view that refreshes itself."""

from __future__ import annotations

import time
from collections.abc import Iterator, Sequence
from typing import TypeVar

import msgspec
from rich.console import Console, Group
from rich.live import Live

from elanus.cli import remote
from elanus.cli.columns import show as show_text
from elanus.cli.status import duration, jobs_table, size
from elanus.server.status import JobStatus

T = TypeVar("T")
_FOLLOW_S = 0.5


def jobs_at(base_url: str) -> list[JobStatus]:
    """Return the job ledger of the server at that address. Raises `NoAnswer`."""
    return _decoded(remote.get(f"{base_url}/jobs"), list[JobStatus])


def show(jobs: Sequence[JobStatus], console: Console | None = None, *, wide: bool = False) -> None:
    show_text(console or Console(), jobs_table(jobs, wide=wide))


def show_one(base_url: str, job_id: str, console: Console | None = None) -> None:
    """Print the history of one job. Raises `NoAnswer`."""
    job = _decoded(remote.get(f"{base_url}/jobs/{job_id}"), JobStatus)
    console = console or Console()
    for line in _story(job):
        show_text(console, line)


def follow(base_url: str, latest: int, console: Console | None = None, *, wide: bool = False) -> None:
    """Show the latest jobs and refresh them twice a second, until interrupted. Raises `NoAnswer`."""
    with Live(console=console, auto_refresh=False) as live:
        while True:
            live.update(
                Group(jobs_table(jobs_at(base_url)[-latest:], wide=wide), "Ctrl-C ends"), refresh=True
            )
            time.sleep(_FOLLOW_S)


def _story(job: JobStatus) -> Iterator[str]:
    """Yield the events of a job, in order."""
    yield f"{job.job_id}: {job.kind}, {job.state}, attempt {job.attempt}"
    yield f"  {job.ordered}  ordered: {job.cause}"
    for who in job.waiting:
        yield f"    waited for by {who}"
    yield from _names("reads", job.inputs, job.input_count)
    if job.started:
        yield f"  {job.started}  started, {job.tasks} tasks"
    if job.ui_url:
        yield f"    in Spark: {job.ui_url}"
    written = f"{job.rows:,} rows, {size(job.bytes)}"
    if not job.ended:
        if job.started:
            yield f"    so far: {job.percent:.0f} %, {job.tasks_done} of {job.tasks} tasks, {written}"
        return
    yield f"  {job.ended}  {job.state} after {duration(job.duration_ms)}"
    if job.output_count:
        yield f"    wrote {written}"
    yield from _names("wrote", job.outputs, job.output_count)
    if job.error:
        yield f"    {job.error}"


def _names(verb: str, names: Sequence[str], count: int) -> Iterator[str]:
    for name in names:
        yield f"    {verb} {name}"
    if count > len(names):
        yield f"    {verb} {count - len(names):,} more"


def _decoded(answer: bytes, of: type[T]) -> T:
    try:
        return msgspec.json.decode(answer, type=of)
    except msgspec.DecodeError as error:
        raise remote.NoAnswer(f"the answer is not of this release: {error}") from None
