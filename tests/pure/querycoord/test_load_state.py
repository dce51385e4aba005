"""Querycoord's records, where they exceed one transaction."""

from __future__ import annotations

from elanus.core.ids import NodeID
from elanus.core.resource_groups import ResourceGroup
from elanus.meta.memory import MemoryMeta
from elanus.meta.port import TXN_OPERATIONS_MAX
from elanus.querycoord.state import LoadState


async def test_more_resource_groups_change_at_once_than_one_transaction_takes() -> None:
    state = LoadState(MemoryMeta())
    groups = [ResourceGroup(f"group-{n:04}", 1, (NodeID(n),)) for n in range(2 * TXN_OPERATIONS_MAX + 1)]
    await state.put_groups(groups)
    assert await state.groups() == groups
