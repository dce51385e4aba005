"""The garbage collection job: list the objects below a prefix, and delete what the rules let go.

One Spark task per prefix. A listing may have millions of objects, so it is looked at in batches, and what is
in use comes as digests, eight bytes a path: memory stays flat. Rules are absolute (numbers and points in
time, no ages), so a task that ran twice, or woke up hours later, deletes nothing that its first run was
not allowed to.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Protocol

from elanus.api.gc import Finding, SweepOrder, SweepOutcome
from elanus.core.batches import batched
from elanus.core.gc import SweepRules, Verdict, verdict
from elanus.core.jobs import JobKind
from elanus.core.path_digests import NamedPaths
from elanus.pipeline.port import Job, JobOutput
from elanus.storage.objects import open_store
from elanus.storage.paths import parse
from elanus.storage.port import ObjectInfo

_BATCH = 4096
_EXAMPLES_MAX = 20


@dataclass(frozen=True, slots=True)
class SweepPlan:
    """One prefix to sweep. Pickles."""

    order: SweepOrder
    store_url: str


class SweptStore(Protocol):
    """The part of an object store that a sweep uses."""

    def list(self, prefix: str) -> Iterator[ObjectInfo]: ...
    def delete_all(self, paths: Sequence[str]) -> None: ...


def sweep_job(orders: Sequence[SweepOrder], store_url: str) -> Job[SweepPlan, SweepOutcome]:
    """Return a job over these prefixes. Its output counts what it deleted, or would have deleted."""
    plans = tuple(SweepPlan(order, store_url) for order in orders)
    return Job(JobKind.GC, tuple(order.prefix for order in orders), sweep_task, plans, _output)


def _output(outcomes: Sequence[SweepOutcome]) -> JobOutput:
    gone = [f for outcome in outcomes for f in outcome.findings if f.verdict.goes]
    return JobOutput((), sum(f.objects for f in gone), sum(f.bytes for f in gone))


def sweep_task(plan: SweepPlan) -> SweepOutcome:
    """The Spark task, in the Python worker."""
    return sweep(plan.order, open_store(plan.store_url))


def sweep(order: SweepOrder, store: SweptStore) -> SweepOutcome:
    """Needs no Spark. An object that is gone already counts as deleted."""
    named = NamedPaths(order.rules.named)
    tallies: dict[Verdict, _Tally] = {}
    for batch in batched(store.list(order.prefix), _BATCH):
        in_use = named.of([info.path for info in batch])
        gone = []
        for info, is_named in zip(batch, in_use.tolist(), strict=True):
            found = Verdict.NAMED if is_named else _verdict(info, order.rules)
            if found.goes:
                gone.append(info.path)
            tallies.setdefault(found, _Tally()).add(info)
        if order.delete:
            store.delete_all(gone)
    findings = (tally.finding(order.prefix, found) for found, tally in tallies.items())
    return SweepOutcome(order.prefix, tuple(findings))


def _verdict(info: ObjectInfo, rules: SweepRules) -> Verdict:
    return verdict(parse(info.path), info.modified.timestamp() * 1000, rules)


class _Tally:
    """Objects with one verdict: how many, how large, and the first few by name."""

    def __init__(self) -> None:
        self._objects = 0
        self._bytes = 0
        self._examples: list[str] = []

    def add(self, info: ObjectInfo) -> None:
        self._objects += 1
        self._bytes += info.size_bytes
        if len(self._examples) < _EXAMPLES_MAX:
            self._examples.append(info.path)

    def finding(self, prefix: str, verdict: Verdict) -> Finding:
        return Finding(prefix, verdict, self._objects, self._bytes, tuple(self._examples))
