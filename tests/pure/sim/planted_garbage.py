"""Planted bugs in what garbage collection takes, and when."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest

from elanus.core import gc as gc_rules
from elanus.core.attempts import OpenAttempts
from elanus.datacoord.attempts import Attempts
from elanus.datacoord.collecting import Collector

SEEDS = 12


def files_of_open_attempts_taken(patch: pytest.MonkeyPatch) -> None:
    """Garbage collection takes what nothing refers to, even if a job may still commit it."""
    patch.setattr(Attempts, "closed_below", lambda self, fresh: fresh)


def commit_after_its_deadline(patch: pytest.MonkeyPatch) -> None:
    """An attempt may commit however long it took, and many take longer than they may."""
    oldest = OpenAttempts.oldest
    patch.setattr(OpenAttempts, "check", lambda self, number, now_s: None)
    patch.setattr(OpenAttempts, "oldest", lambda self, now_s: oldest(replace(self, deadline_s=1.0), now_s))


def drop_tolerance_ignored(patch: pytest.MonkeyPatch) -> None:
    """Files of what was dropped go at once."""
    patch.setattr(gc_rules, "expires_ms", lambda dropped, policy: 0)
    patch.setattr("elanus.datacoord.references.expires_ms", lambda dropped, policy: 0)


def attempts_looked_up_after_references(patch: pytest.MonkeyPatch) -> None:
    """The files in use are read first, and only then the attempts that have ended."""
    moment = Collector._moment

    async def torn(self: Collector) -> Any:
        seen = await moment(self)
        await asyncio.sleep(3.0)
        later = await moment(self)
        return replace(seen, attempts_below=later.attempts_below, wall_ms=later.wall_ms)

    patch.setattr(Collector, "_moment", torn)


def superseded_files_kept(patch: pytest.MonkeyPatch) -> None:
    """Only what was dropped is collected."""
    judge = gc_rules.verdict

    def kind(name: Any, modified_ms: float, rules: Any) -> Any:
        found = judge(name, modified_ms, rules)
        return gc_rules.Verdict.YOUNG if found is gc_rules.Verdict.SUPERSEDED else found

    patch.setattr("elanus.pipeline.sweep.verdict", kind)


BUGS: tuple[tuple[str, Callable[[pytest.MonkeyPatch], None], frozenset[str], int, int], ...] = (
    ("files of open attempts taken", files_of_open_attempts_taken, frozenset({"GC1"}), SEEDS, 1),
    ("commit after its deadline", commit_after_its_deadline, frozenset({"GC1"}), SEEDS, 5),
    ("drop tolerance ignored", drop_tolerance_ignored, frozenset({"GC2"}), SEEDS, 1),
    ("attempts looked up late", attempts_looked_up_after_references, frozenset({"GC1"}), SEEDS, 1),
    ("superseded files kept", superseded_files_kept, frozenset({"GC3"}), SEEDS, 1),
)
"""Name, patch, the invariants under which it counts as found, how many seeds it may take, and the first."""
