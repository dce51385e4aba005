"""Bugs of the way in which deletes reach the rows that they concern."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest
from planted_schedule import everything_visited

from elanus.querynode.delete_applier import DeleteApplier, DeleteLimits
from elanus.querynode.follower import Follower, PackEffect
from elanus.querynode.growing import GrowingBlock
from elanus.querynode.key_filters import filter_of
from elanus.querynode.loaded_collection import LoadedCollection


def deletes_reach_growing_rows_only(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(LoadedCollection, "sealed_visits", lambda self, vchannel, deletes: [])


def tick_does_not_wait_for_deletes(patch: pytest.MonkeyPatch) -> None:
    """A vchannel's tick moves on while its deletes are still being applied in threads."""
    apply, applying = DeleteApplier.apply, set()

    async def later(self: DeleteApplier, visits: Any) -> None:
        task = asyncio.create_task(apply(self, visits))
        applying.add(task)
        task.add_done_callback(applying.discard)

    patch.setattr(DeleteApplier, "apply", later)


def rows_added_while_deletes_are_applied(patch: pytest.MonkeyPatch) -> None:
    """A vchannel's rows are added, which joins blocks, while the deletes before them are being applied."""
    take, effects = Follower.take, {}

    def early(self: Follower, packs: Any) -> None:
        chosen = self._choose(packs)
        effects[id(packs)] = self._adopt(chosen, chosen.arrivals.prepared())
        take(self, packs)

    async def taken_before(self: Follower, packs: Any) -> PackEffect:
        return effects.pop(id(packs))

    patch.setattr("elanus.sim.builders.DELETE_LIMITS", DeleteLimits(inline_keys_max=0, chunk_keys_max=1))
    everything_visited(patch)
    patch.setattr(Follower, "take", early)
    patch.setattr(Follower, "_take_in", taken_before)


def filters_miss_a_key(patch: pytest.MonkeyPatch) -> None:
    """The filter of each sealed segment lacks one of its keys."""
    patch.setattr("elanus.querynode.block.filter_of", lambda codes: filter_of(codes[1:]))


def joined_blocks_forget_their_deletes(patch: pytest.MonkeyPatch) -> None:
    """A growing block that takes the place of others lacks the deletes that were applied to them."""
    patch.setattr(GrowingBlock, "take_deletes", lambda self, parts: None)


_DELETED_IS_SEEN = frozenset({"DEL1", "VIS2"})
BUGS = (
    ("deletes reach growing rows only", deletes_reach_growing_rows_only, _DELETED_IS_SEEN),
    ("joined blocks forget their deletes", joined_blocks_forget_their_deletes, _DELETED_IS_SEEN, 12, 150),
    ("tick does not wait for deletes", tick_does_not_wait_for_deletes, _DELETED_IS_SEEN),
    (
        "rows added while deletes are applied",
        rows_added_while_deletes_are_applied,
        _DELETED_IS_SEEN | {"UPS1"},
        12,
        9,
    ),
    ("filters miss a key", filters_miss_a_key, _DELETED_IS_SEEN, 12, 2),
)
