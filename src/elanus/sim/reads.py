"""How a proxy's reads reach the one query node that is in its process, with threads that take turns."""

from __future__ import annotations

from collections.abc import Callable

from elanus.core.errors import DeadlineExceeded
from elanus.core.ids import CollectionID
from elanus.core.timestamps import Timestamp
from elanus.proxy.patience import Patience
from elanus.querynode.node import QueryNode
from elanus.server.reads import CurrentReads
from elanus.sim.turns import Turns

_FIRST_LOOK_S = 0.001
_LAST_LOOK_S = 0.05


class ReadsInTurns(CurrentReads):
    """As `CurrentReads`; but a thread that blocked on the node would keep its turn, so it looks again."""

    def __init__(self, current: Callable[[], QueryNode | None], turns: Turns) -> None:
        super().__init__(current)
        self._turns = turns

    def wait_service_time(self, collection_id: CollectionID, ts: Timestamp, patience: Patience) -> None:
        pause_s = _FIRST_LOOK_S
        while self.service_time(collection_id) < ts:
            if not patience.left_s():
                raise DeadlineExceeded(f"timestamp {ts} was not reached in {patience.timeout_s:g} s; retry")
            self._turns.sleep(pause_s)
            pause_s = min(_LAST_LOOK_S, 2 * pause_s)
