"""Planted bugs in who owns which vchannel, and who may write to it."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import replace
from typing import Any

import pytest
from planted_schedule import everything_visited

from elanus.datacoord.attempts import Attempts
from elanus.datacoord.commits import Commits
from elanus.datacoord.datanodes import DataNodes
from elanus.datacoord.state import DataState
from elanus.meta.session import Session
from elanus.proxy.role.stamps import RemoteStamps
from elanus.rootcoord.timesync import TimeSync
from elanus.sim import client_plans, plan

SEEDS = 12


def former_owner_believed(patch: pytest.MonkeyPatch) -> None:
    """A commit of a vchannel's former owner is accepted, however late."""
    everything_visited(patch)
    checked = Commits._checked

    def believed(self: Commits, commit: Any) -> Any:
        known = self._state.vchannel(commit.vchannel)
        return known if known is not None and known.epoch != commit.epoch else checked(self, commit)

    patch.setattr(Commits, "_checked", believed)
    patch.setattr(DataNodes, "check_owner", lambda self, vchannel, epoch: None)
    patch.setattr(Attempts, "check", lambda self, number: None)


def moved_under_its_old_epoch(patch: pytest.MonkeyPatch) -> None:
    """A vchannel that is given to another keeps its epoch."""
    put = DataState.put

    async def kept(self: DataState, segments: Any = (), vchannels: Any = (), **more: Any) -> None:
        known = {v.vchannel: v.epoch for v in self.vchannels() if v.epoch}
        old = [replace(v, epoch=known.get(v.vchannel, v.epoch)) for v in vchannels]
        await put(self, segments, old, **more)

    patch.setattr(DataState, "put", kept)


def counted_out_without_a_fence(patch: pytest.MonkeyPatch) -> None:
    """Ticks pass the writes of a proxy whose lease was revoked and that does not know it yet."""

    async def unfenced(self: TimeSync, pchannels: Iterable[str]) -> None: ...

    patch.setattr(TimeSync, "fence", unfenced)


def first_append_not_confirmed(patch: pytest.MonkeyPatch) -> None:
    """A proxy that no fence concerns yet writes without asking whether its session is still there."""

    async def hopeful(self: Session) -> None: ...

    patch.setattr(Session, "confirm_in_store", hopeful)


def replaced_oracle_believed(patch: pytest.MonkeyPatch) -> None:
    """A proxy takes timestamps of a rootcoord that was replaced, after ticks of its successor passed them.

    Hunted where it can be found: in every seed rootcoord is replaced without knowing it.
    """
    patch.setattr(plan, "has_replacements", lambda seed: True)
    patch.setattr(client_plans, "_REPLACED", 8.0)
    patch.setattr(RemoteStamps, "reported", lambda self, ts: None)


BUGS: tuple[tuple[str, Callable[[pytest.MonkeyPatch], None], frozenset[str], int, int], ...] = (
    (
        "former owner believed",
        former_owner_believed,
        frozenset({"CKPT1", "SEG1", "SEG2", "VIS2"}),
        SEEDS,
        48,
    ),
    ("counted out without a fence", counted_out_without_a_fence, frozenset({"DUR1", "TT2"}), SEEDS, 0),
    ("first append not confirmed", first_append_not_confirmed, frozenset({"DUR1", "TT2"}), SEEDS, 11),
    ("replaced oracle believed", replaced_oracle_believed, frozenset({"DUR1", "TT2"}), SEEDS, 20),
    ("moved under its old epoch", moved_under_its_old_epoch, frozenset({"OWN1"}), SEEDS, 1),
)
"""Name, patch, the invariants under which it counts as found, how many seeds it may take, and the first."""
