"""Planted bugs in how several query nodes answer one read, and in what moves between them."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from elanus.api.query_channel import SealedSegmentsChangeInfo, decode_message
from elanus.core.errors import ElanusError
from elanus.proxy.fanout.pending import Gathering
from elanus.querynode.kept_pulse import KeptPulse
from elanus.querynode.key_ranges import Visits
from elanus.querynode.loaded_collection import LoadedCollection
from elanus.querynode.serving import ChannelServing
from elanus.sim import plan

SEEDS = 12
_TWICE_OR_DELETED = frozenset({"DEL1", "VIS2"})


def _in_clusters(plant: Callable[[pytest.MonkeyPatch], None]) -> Callable[[pytest.MonkeyPatch], None]:
    """Hunted where it can be found: every seed has several query nodes."""

    def planted(patch: pytest.MonkeyPatch) -> None:
        patch.setattr(plan, "_READINGS", tuple(r for r in plan._READINGS if r.is_cluster))
        plant(patch)

    planted.__doc__ = plant.__doc__
    return planted


@_in_clusters
def answer_without_all_segments(patch: pytest.MonkeyPatch) -> None:
    """A read is complete when all vchannels have been searched, whatever sealed segments the version has."""

    def early(self: Gathering) -> bool:
        return self._vchannels <= {v for result in self._results.values() for v in result.vchannels}

    patch.setattr(Gathering, "_is_complete", early)


def versions_mixed(patch: pytest.MonkeyPatch) -> None:
    """A version overtakes reads that wait for their moment, and nobody compares the versions of answers."""
    patch.setattr(plan, "_READINGS", (plan.Reading(plan.QUERY_NODES),))

    def complete(self: Gathering) -> bool:
        results = self._results.values()
        segments = {s for result in results for s in result.segments}
        vchannels = {v for result in results for v in result.vchannels}
        return self._vchannels <= vchannels and segments.issuperset(next(iter(results)).sealed)

    async def follow(self: ChannelServing, reader: Any) -> None:
        try:
            while True:
                message = decode_message((await reader.next())[1])
                if isinstance(message, SealedSegmentsChangeInfo):
                    await self._take_version(message)
                elif message.collection_id == self._collection.collection_id:
                    self._begin(message)
        except ElanusError:
            self._on_end()

    patch.setattr(Gathering, "_is_complete", complete)
    patch.setattr(ChannelServing, "_follow", follow)


@_in_clusters
def deletes_only_where_rows_are_led(patch: pytest.MonkeyPatch) -> None:
    """The deletes of a vchannel do not reach segments on nodes that do not lead it."""
    delete = LoadedCollection.sealed_visits

    def led(self: LoadedCollection, vchannel: str, deletes: Any) -> list[Visits]:
        return delete(self, vchannel, deletes) if vchannel in self.leads else []

    patch.setattr(LoadedCollection, "sealed_visits", led)


def pulse_not_kept(patch: pytest.MonkeyPatch) -> None:
    """The pulse of a query node, which it keeps, misses what changes: loads are not found to be served."""
    patch.setattr(KeptPulse, "changed", lambda self, collection_id: None)


BUGS: tuple[tuple[str, Callable[[pytest.MonkeyPatch], None], frozenset[str], int, int], ...] = (
    ("answer without all segments", answer_without_all_segments, frozenset({"VIS1", "VIS3"}), SEEDS, 1),
    ("versions mixed", versions_mixed, frozenset({"VIS1", "VIS2", "VIS3"}), SEEDS, 3),
    ("deletes only where rows are led", deletes_only_where_rows_are_led, _TWICE_OR_DELETED, SEEDS, 1),
    ("pulse not kept", pulse_not_kept, frozenset({"LIVE1"}), SEEDS, 1),
)
"""Name, patch, the invariants under which it counts as found, how many seeds it may take, and the first."""
