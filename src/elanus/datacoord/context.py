"""The state and peers that the parts of the data coordinator share."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine
from dataclasses import dataclass, field
from typing import Any

from elanus.api.rootcoord import RootCoordApi
from elanus.core.change import Changes
from elanus.core.clock import Clock
from elanus.core.lease import Lease
from elanus.core.moments_held import MomentsHeld
from elanus.core.offload import Offload
from elanus.datacoord.attempts import Attempts
from elanus.datacoord.manifests import Manifests
from elanus.datacoord.segment_allocator import SegmentAllocator
from elanus.datacoord.state import DataState
from elanus.storage.port import ObjectStore


@dataclass(frozen=True, slots=True)
class DataContext:
    """``lease``: this coordinator's own, which makes it the active one. ``lock``: held while the state is
    read and changed in several steps. ``store``: the objects. ``changes`` wakes the roles that follow this
    one. ``spawn`` runs a coroutine until the role stops; ``offload`` runs blocking work. ``moments``: those
    that snapshots are being taken of."""

    lease: Lease
    state: DataState
    store: ObjectStore
    manifests: Manifests
    allocator: SegmentAllocator
    attempts: Attempts
    rootcoord: RootCoordApi
    clock: Clock
    lock: asyncio.Lock
    changes: Changes
    spawn: Callable[[Coroutine[Any, Any, None]], None]
    offload: Offload
    moments: MomentsHeld = field(default_factory=MomentsHeld)
