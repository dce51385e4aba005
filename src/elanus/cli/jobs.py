"""`elanus jobs`: the job ledger as a table, one job's story, and waiting for what runs.

While jobs run, their last column is a bar; what ended badly is coloured.
"""

from __future__ import annotations

import time
from collections.abc import Iterator, Sequence
from typing import TypeVar

import msgspec
from rich.console import Console, Group
from rich.live import Live
from rich.markup import escape
from rich.progress_bar import ProgressBar
from rich.table import Table
from rich.text import Text

from elanus.cli import remote
from elanus.cli.status import duration, size
from elanus.server.status import JobStatus

T = TypeVar("T")
_FOLLOW_S = 0.5
_BAR_WIDTH = 16
_STYLES = {"running": "cyan", "finished": "green", "failed": "red", "lost": "red", "cancelled": "yellow"}


def jobs_at(base_url: str) -> list[JobStatus]:
    """The ledger of the server there. Raises `NoAnswer`."""
    return _decoded(remote.get(f"{base_url}/jobs"), list[JobStatus])


def show(jobs: Sequence[JobStatus], console: Console | None = None) -> None:
    (console or Console()).print(table(jobs))


def show_one(base_url: str, job_id: str, console: Console | None = None) -> None:
    """One job's story. Raises `NoAnswer`."""
    job = _decoded(remote.get(f"{base_url}/jobs/{job_id}"), JobStatus)
    console = console or Console()
    for line in _story(job):
        console.print(escape(line), soft_wrap=True)


def follow(base_url: str, latest: int, console: Console | None = None) -> None:
    """Show the latest jobs anew twice a second, until interrupted. Raises `NoAnswer`."""
    with Live(table(jobs_at(base_url)[-latest:]), console=console, auto_refresh=False) as live:
        while True:
            live.update(Group(table(jobs_at(base_url)[-latest:]), "Ctrl-C ends"), refresh=True)
            time.sleep(_FOLLOW_S)


def table(jobs: Sequence[JobStatus]) -> Table:
    shown = Table("job", "kind", "state", "cause", "started", title="Jobs", title_justify="left")
    for name in ("took", "rows", "size"):
        shown.add_column(name, justify="right")
    shown.add_column("progress")
    for job in jobs:
        state = Text(job.state, _STYLES.get(job.state, ""))
        facts = (duration(job.duration_ms), f"{job.rows:,}", size(job.bytes))
        started = job.started.partition(".")[0].replace("T", " ")
        shown.add_row(job.job_id, job.kind, state, job.cause, started, *facts, _progress(job))
    return shown


def _progress(job: JobStatus) -> ProgressBar | Text:
    if job.state == "running":
        return ProgressBar(total=100.0, completed=job.percent, width=_BAR_WIDTH)
    return Text(job.error.partition("\n")[0] if job.error else "", "red")


def _story(job: JobStatus) -> Iterator[str]:
    """What happened, in order."""
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
