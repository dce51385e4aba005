"""`elanus gc`: a round of garbage collection on a running server, with progress and its result."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Sequence
from datetime import UTC, datetime
from typing import TypeVar

import msgspec
from rich.console import Console
from rich.progress import Progress
from rich.text import Text

from elanus.api.gc import Finding, GcReport, GcStatus, HeldFiles, PinnedSegment
from elanus.cli import remote
from elanus.cli.columns import Column, show, table
from elanus.cli.status import duration, size
from elanus.server.status import Status
from elanus.storage.paths import PREFIXES

T = TypeVar("T")
_LOOK_S = 0.3
_PINNED_SHOWN_MAX = 50
_EXAMPLES_SHOWN_MAX = 3


def run(base_url: str, *, dry: bool, console: Console | None = None) -> bool:
    """Start a round on the server, wait for its end, show it. Returns whether it ended without an error.

    Raises `NoAnswer`.
    """
    console = console or Console()
    before = _status(base_url).rounds
    remote.collect_garbage(base_url, dry=dry)
    with Progress(console=console, transient=True) as progress:
        bar = progress.add_task("waiting", total=len(PREFIXES))
        while (status := _status(base_url)).rounds == before or _is_another(status.last, dry=dry):
            progress.update(bar, description=status.state.value, completed=len(status.swept))
            time.sleep(_LOOK_S)
    if status.last is None:
        raise remote.NoAnswer("the server has forgotten the round: its data coordinator was restarted")
    names = _answer(f"{base_url}/status", Status).collection_named
    for part in render(status.last, names):
        show(console, part)
    return not status.last.error


def _is_another(report: GcReport | None, *, dry: bool) -> bool:
    """Whether this is the report of a round that had started earlier."""
    return report is not None and report.deleted is dry


def _status(base_url: str) -> GcStatus:
    return _answer(f"{base_url}/gc", GcStatus)


def _answer(url: str, form: type[T]) -> T:
    try:
        return msgspec.json.decode(remote.get(url), type=form)
    except msgspec.DecodeError as error:
        raise remote.NoAnswer(f"the answer is not of this release: {error}") from None


def render(report: GcReport, names: Callable[[int], str]) -> Iterator[Text | str]:
    """Yield the lines about what is deleted and why, and what is kept until when. ``names``: of collections,
    by their ids."""
    gone = [f for f in report.findings if f.verdict.goes]
    if gone:
        yield _findings("Deleted" if report.deleted else "Would be deleted", gone)
    stays = [f for f in report.findings if not f.verdict.goes]
    if stays:
        yield _findings("Stays", stays)
    if report.pinned:
        yield _pinned(report.pinned, names)
    if report.held:
        yield _held(report.held, names)
    objects, count_bytes = sum(f.objects for f in gone), sum(f.bytes for f in gone)
    verb = "reclaimed" if report.deleted else "could be reclaimed"
    yield f"{size(count_bytes)} in {objects:,} objects {verb}, {duration(report.took_ms)}"
    if report.error:
        yield f"not finished: {report.error}; the next round goes on"


def _findings(title: str, findings: Sequence[Finding]) -> Text:
    columns = (Column("where"), Column("objects", right=True), Column("size", right=True), Column("why"))
    rows = [
        (found.prefix, f"{found.objects:,}", size(found.bytes), found.verdict.value + _examples(found))
        for found in sorted(findings, key=lambda f: (f.prefix, f.verdict))
    ]
    return table(title, columns, rows)


def _examples(found: Finding) -> str:
    shown = found.examples[:_EXAMPLES_SHOWN_MAX] if found.verdict.goes else ()
    return f", such as {' '.join(shown)}" if shown else ""


def _held(held: Sequence[HeldFiles], names: Callable[[int], str]) -> Text:
    columns = (Column("collection"), Column("size", right=True), Column("until"), Column("held by"))
    rows = [
        (
            names(one.collection_id),
            size(one.bytes) if one.bytes else "",
            _time(one.until_ms) if one.until_ms else "released or dropped",
            one.holder,
        )
        for one in held[:_PINNED_SHOWN_MAX]
    ]
    return table(f"Files that are held{_share(held)}", columns, rows)


def _pinned(pinned: Sequence[PinnedSegment], names: Callable[[int], str]) -> Text:
    columns = [Column("segment"), Column("collection"), Column("size", right=True)]
    columns += map(Column, ("dropped", "at least until", "read by"))
    rows = [
        (
            str(segment.segment_id),
            names(segment.collection_id),
            size(segment.bytes),
            _time(segment.dropped_ms),
            _time(segment.until_ms),
            segment.read_by,
        )
        for segment in sorted(pinned, key=lambda p: p.until_ms)[:_PINNED_SHOWN_MAX]
    ]
    return table(f"Dropped segments whose files stay{_share(pinned)}", columns, rows)


def _share(all_of_them: Sequence[object]) -> str:
    return f", {_PINNED_SHOWN_MAX} of {len(all_of_them)}" if len(all_of_them) > _PINNED_SHOWN_MAX else ""


def _time(ms: int) -> str:
    return datetime.fromtimestamp(ms / 1000, UTC).strftime("%Y-%m-%d %H:%M:%S UTC")
