"""The worked example of time synchronization, with every delay a network can think of.

====  ================  ==============
ts    u1                u2
====  ================  ==============
t0    create C0
t2                      search C0
t5    insert A1
t7                      search C0
t10   insert A2
t12                     search C0
t15   delete A1
t17                     search C0
====  ================  ==============

u2 is to see nothing at t2, A1 at t7, A1 and A2 at t12, and A2 alone at t17, however long u1's messages take.
"""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from elanus.core.ids import NodeID
from elanus.core.messages import MsgKind
from elanus.core.packs import Pack, PackAssembler
from elanus.core.ticks import TickBarrier, UnfinishedWrites, tick_report
from elanus.core.timestamps import NO_TIMESTAMP, Timestamp
from elanus.core.visibility import NEVER_DELETED, apply_deletes, visible

PCHANNEL = "dml_0"
U1, U2 = NodeID(1), NodeID(2)
CREATE, INSERT, DELETE = MsgKind.CREATE_COLLECTION, MsgKind.INSERT, MsgKind.DELETE


@dataclass(frozen=True)
class Message:
    kind: MsgKind
    ts: Timestamp
    row: str = ""
    vchannel: str = "v"
    rows: int = 1
    epoch: int = 1


EVENTS = {
    0: Message(CREATE, Timestamp(100)),
    5: Message(INSERT, Timestamp(105), "A1"),
    10: Message(INSERT, Timestamp(110), "A2"),
    15: Message(DELETE, Timestamp(115), "A1"),
}
SEEN = {2: None, 7: ["A1"], 12: ["A1", "A2"], 17: ["A2"]}
"""At t2 the collection exists and is empty."""


@dataclass
class System:
    """One pchannel, two proxies, the root coordinator, and a node that reads the channel."""

    ticks: TickBarrier = field(default_factory=TickBarrier)
    unfinished: UnfinishedWrites = field(default_factory=UnfinishedWrites)
    node: PackAssembler[Message] = field(default_factory=PackAssembler)
    served: Timestamp = NO_TIMESTAMP
    position: int = 0
    exists: bool = False
    rows: list[str] = field(default_factory=list)
    row_ts: list[int] = field(default_factory=list)
    deletes: list[tuple[str, Timestamp]] = field(default_factory=list)

    def __post_init__(self) -> None:
        for node_id in (U1, U2):
            self.ticks.join(node_id)

    def send(self, message: Message) -> None:
        """The message reaches the channel at last."""
        self._append(message)
        self.unfinished.remove(message.ts, (PCHANNEL,))

    def tick(self, now: Timestamp) -> None:
        """Both proxies report, the root coordinator ticks."""
        self.ticks.report(U1, *tick_report(now, self.unfinished.oldest()))
        self.ticks.report(U2, *tick_report(now, {}))
        for ts in self.ticks.advance([PCHANNEL]).values():
            self._append(Message(MsgKind.TIME_TICK, ts))

    def _append(self, message: Message) -> None:
        self.position += 1
        pack = self.node.feed(message, self.position, self.position + 1, message)
        if pack is not None:
            self._apply(pack)

    def _apply(self, pack: Pack[Message]) -> None:
        self.served = pack.end_ts
        for message in pack.entries:
            if message.kind is CREATE:
                self.exists = True
            elif message.kind is INSERT:
                self.rows.append(message.row)
                self.row_ts.append(message.ts)
            else:
                self.deletes.append((message.row, message.ts))

    def search(self, read_ts: Timestamp) -> list[str] | None:
        """None while the node has not come so far."""
        if self.served < read_ts:
            return None
        assert self.exists
        row_ts = np.array(self.row_ts, dtype=np.int64)
        deleted = np.full(len(row_ts), NEVER_DELETED)
        for row, ts in self.deletes:
            apply_deletes(deleted, row_ts, np.array([self.rows.index(row)]), np.array([ts]))
        return [r for r, seen in zip(self.rows, visible(row_ts, deleted, read_ts), strict=True) if seen]


@given(st.data())
def test_u2_sees_what_it_should_whatever_is_delayed(data: st.DataObject) -> None:
    system = System()
    on_their_way: list[Message] = []
    waiting: list[int] = []
    answers: dict[int, list[str] | None] = {}
    for moment in range(25):
        if moment in EVENTS:
            message = EVENTS[moment]
            system.unfinished.add(message.ts, (PCHANNEL,))
            on_their_way.append(message)
        if moment in SEEN:
            waiting.append(moment)
        for message in (
            data.draw(st.lists(st.sampled_from(on_their_way), unique=True)) if on_their_way else []
        ):
            on_their_way.remove(message)
            system.send(message)
        if data.draw(st.booleans()):
            system.tick(Timestamp(100 + moment))
        answers |= {m: found for m in waiting if (found := system.search(Timestamp(100 + m))) is not None}
        waiting = [m for m in waiting if m not in answers]
    for message in on_their_way:
        system.send(message)
    system.tick(Timestamp(200))
    answers |= {m: system.search(Timestamp(100 + m)) for m in waiting}
    assert answers == {moment: seen or [] for moment, seen in SEEN.items()}
    assert system.node.late_messages == 0


def test_a_search_waits_for_the_delete_that_was_delayed() -> None:
    system = System()
    for moment in (0, 5, 10):
        system.unfinished.add(EVENTS[moment].ts, (PCHANNEL,))
        system.send(EVENTS[moment])
    system.unfinished.add(EVENTS[15].ts, (PCHANNEL,))
    system.tick(Timestamp(118))
    assert system.search(Timestamp(117)) is None, "the delete of t15 is not in the channel yet"
    assert system.search(Timestamp(114)) == ["A1", "A2"], "an older moment need not wait"
    system.send(EVENTS[15])
    system.tick(Timestamp(119))
    assert system.search(Timestamp(117)) == ["A2"]
    assert system.search(Timestamp(112)) == ["A1", "A2"], "the delete is later than this read"


@pytest.mark.parametrize("silent", [U1, U2])
def test_nobody_is_answered_before_every_proxy_has_reported(silent: NodeID) -> None:
    system = System()
    system.ticks.report(U1 if silent is U2 else U2, Timestamp(300), {})
    assert system.ticks.advance([PCHANNEL]) == {}
    assert system.served == NO_TIMESTAMP
