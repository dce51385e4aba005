"""How a proxy's reads reach the single query node in its process, with cooperative threads."""

from __future__ import annotations

from collections.abc import Callable

from elanus.api.querycoord import QueryCoordApi
from elanus.core.errors import DeadlineExceeded
from elanus.core.ids import CollectionID
from elanus.core.timestamps import Timestamp
from elanus.proxy.fanout.deadline import Patience
from elanus.querynode.node import QueryNode
from elanus.server.current_reads import CurrentReads
from elanus.sim.coop_threads import Turns

_FIRST_LOOK_S = 0.001
_LAST_LOOK_S = 0.05


class ReadsInTurns(CurrentReads):
    """Like `CurrentReads`, but polls: a thread that blocked on the node would keep its turn."""

    def __init__(
        self, current: Callable[[], QueryNode | None], querycoord: QueryCoordApi, turns: Turns
    ) -> None:
        super().__init__(current, querycoord, turns)
        self._turns = turns

    def wait_service_time(self, collection_id: CollectionID, ts: Timestamp, patience: Patience) -> None:
        pause_s = _FIRST_LOOK_S
        while self.service_time(collection_id, patience) < ts:
            if not patience.left_s():
                raise DeadlineExceeded(f"timestamp {ts} was not reached in {patience.timeout_s:g} s; retry")
            self._turns.sleep(pause_s)
            pause_s = min(_LAST_LOOK_S, 2 * pause_s)
