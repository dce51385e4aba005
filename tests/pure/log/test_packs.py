"""Packs: what consumers of a pchannel may act on, for any interleaving of messages, ticks and epochs."""

from __future__ import annotations

from dataclasses import dataclass

from hypothesis import given
from hypothesis import strategies as st

from elanus.core.catalog import Checkpoint
from elanus.core.messages import MsgKind
from elanus.core.packs import Pack, PackAssembler
from elanus.core.timestamps import Timestamp
from elanus.log.port import EntryHeader

A, B = "dml_0_1v0", "dml_0_2v0"


@dataclass(frozen=True)
class At:
    """An entry and the position the tests give it."""

    position: int
    header: EntryHeader

    @property
    def next(self) -> int:
        return self.position + 5


def message(ts: int, vchannel: str = A, rows: int = 1, kind: MsgKind = MsgKind.INSERT) -> EntryHeader:
    return EntryHeader(kind, Timestamp(ts), vchannel, rows=rows)


def tick(ts: int, epoch: int = 0) -> EntryHeader:
    return EntryHeader(MsgKind.TIME_TICK, Timestamp(ts), epoch=epoch)


def mark(epoch: int) -> EntryHeader:
    return EntryHeader(MsgKind.EPOCH, Timestamp(1), epoch=epoch)


def log_of(*headers: EntryHeader) -> list[At]:
    return [At(10 * (place + 1), header) for place, header in enumerate(headers)]


def packs(log: list[At], assembler: PackAssembler[At] | None = None) -> list[Pack[At]]:
    assembler = PackAssembler() if assembler is None else assembler
    found = (assembler.feed(at.header, at.position, at.next, at) for at in log)
    return [pack for pack in found if pack is not None]


def contents(found: list[Pack[At]]) -> list[tuple[int, int, list[int]]]:
    return [(p.begin_ts, p.end_ts, [at.header.ts for at in p.entries]) for p in found]


def test_a_tick_releases_what_it_covers_in_order_of_time() -> None:
    log = log_of(message(3), message(9), message(1), tick(5), message(7), tick(10))
    assert contents(packs(log)) == [(0, 5, [1, 3]), (5, 10, [7, 9])]


def test_messages_of_one_timestamp_keep_the_order_of_the_log() -> None:
    log = log_of(message(2, rows=1), message(1), message(2, rows=2), message(2, rows=3), tick(2))
    assert [at.header.rows for at in packs(log)[0].entries] == [1, 1, 2, 3]


def test_a_tick_without_messages_is_an_empty_pack() -> None:
    assert contents(packs(log_of(tick(5), tick(6)))) == [(0, 5, []), (5, 6, [])]


def test_a_message_at_or_below_the_tick_in_force_is_late() -> None:
    assembler: PackAssembler[At] = PackAssembler()
    log = log_of(tick(5), message(5, rows=3), message(4, rows=4), message(6), tick(6))
    assert contents(packs(log, assembler)) == [(0, 5, []), (5, 6, [6])]
    assert (assembler.late_messages, assembler.late_rows) == (2, 7)


def test_ticks_never_go_back() -> None:
    log = log_of(tick(5), tick(3), message(4), tick(5), message(6), tick(7))
    assert contents(packs(log)) == [(0, 5, []), (5, 7, [6])]


def test_ticks_of_an_older_epoch_are_ignored() -> None:
    log = log_of(mark(2), tick(5, 2), mark(3), tick(8, 2), message(7), mark(1), tick(9, 2), tick(9, 3))
    assert contents(packs(log)) == [(0, 5, []), (5, 9, [7])]


def test_ddl_is_packed_with_the_writes_it_is_ordered_against() -> None:
    log = log_of(message(2), message(1, kind=MsgKind.CREATE_COLLECTION), tick(2))
    kinds = [at.header.kind for at in packs(log)[0].entries]
    assert kinds == [MsgKind.CREATE_COLLECTION, MsgKind.INSERT]


def test_other_vchannels_neither_come_nor_count() -> None:
    assembler: PackAssembler[At] = PackAssembler(vchannels=[A])
    log = log_of(message(9, B), message(1), message(2, B), tick(3), message(1, B), tick(4))
    found = packs(log, assembler)
    assert contents(found) == [(0, 3, [1]), (3, 4, [])]
    assert assembler.late_messages == 0
    assert found[0].seek == Checkpoint(Timestamp(3), log[3].next, Timestamp(3), 0)


def test_the_seek_point_is_the_oldest_message_that_waits() -> None:
    log = log_of(mark(1), tick(2, 1), message(9), mark(2), message(3), message(8), tick(4, 2), tick(9, 2))
    middle, last = packs(log)[1:]
    assert middle.seek == Checkpoint(Timestamp(4), log[2].position, Timestamp(2), 1)
    assert middle.next_position == log[6].next
    assert last.seek == Checkpoint(Timestamp(9), log[7].next, Timestamp(9), 2)


def test_a_reader_that_starts_at_a_seek_point_repeats_nothing() -> None:
    log = log_of(message(9), message(3), tick(4), message(5), tick(9))
    start = packs(log)[0].seek
    assert start.position == log[0].position
    assert contents(packs(log, PackAssembler(start))) == [(4, 9, [5, 9])]


HEADERS = st.one_of(
    st.builds(message, st.integers(1, 12), st.sampled_from([A, B])),
    st.builds(tick, st.integers(1, 12), st.integers(0, 3)),
    st.builds(mark, st.integers(1, 3)),
)
LOGS = st.lists(HEADERS, max_size=40).map(lambda headers: log_of(*headers))
FILTERS = st.sampled_from([None, (A,), (B,), (A, B)])


@dataclass
class Expected:
    """The rules, applied the long way round."""

    packs: list[tuple[int, int, list[At]]]
    late: list[At]
    never: list[At]

    @staticmethod
    def of(log: list[At], vchannels: tuple[str, ...] | None) -> Expected:
        def in_force(place: int) -> tuple[int, int]:
            ts = epoch = 0
            for at in log[:place]:
                if at.header.kind is MsgKind.EPOCH:
                    epoch = max(epoch, at.header.epoch)
                elif at.header.kind is MsgKind.TIME_TICK and at.header.epoch >= epoch:
                    ts = max(ts, at.header.ts)
            return ts, epoch

        own = [
            (place, at)
            for place, at in enumerate(log)
            if at.header.kind is MsgKind.INSERT and (vchannels is None or at.header.vchannel in vchannels)
        ]
        late = [at for place, at in own if at.header.ts <= in_force(place)[0]]
        expected = Expected([], late, [])
        timely = [(place, at) for place, at in own if at not in late]
        through = 0
        for place in range(len(log)):
            now = in_force(place + 1)[0]
            if now > through:
                ready = [at for p, at in timely if p < place and through < at.header.ts <= now]
                expected.packs.append((through, now, sorted(ready, key=lambda at: at.header.ts)))
                through = now
        expected.never = [at for _, at in timely if at.header.ts > through]
        return expected


@given(LOGS, FILTERS)
def test_packs_follow_the_rules(log: list[At], vchannels: tuple[str, ...] | None) -> None:
    assembler: PackAssembler[At] = PackAssembler(vchannels=vchannels)
    found = packs(log, assembler)
    expected = Expected.of(log, vchannels)
    assert [(p.begin_ts, p.end_ts, list(p.entries)) for p in found] == expected.packs
    assert assembler.late_messages == len(expected.late)
    packed = [at for p in found for at in p.entries]
    own = [
        at
        for at in log
        if at.header.kind is MsgKind.INSERT and (vchannels is None or at.header.vchannel in vchannels)
    ]
    everything = [*packed, *expected.late, *expected.never]
    assert sorted(at.position for at in everything) == [at.position for at in own], "each exactly once"


@given(LOGS, FILTERS)
def test_from_any_seek_point_the_later_packs_are_the_same(
    log: list[At], vchannels: tuple[str, ...] | None
) -> None:
    found = packs(log, PackAssembler(vchannels=vchannels))
    late = {at.position for at in Expected.of(log, vchannels).late}
    for done, pack in enumerate(found, start=1):
        rest = [at for at in log if at.position >= pack.seek.position]
        restarted: PackAssembler[At] = PackAssembler(pack.seek, vchannels)
        assert packs(rest, restarted) == found[done:]
        assert restarted.late_messages == len(late & {at.position for at in rest})


@given(LOGS)
def test_a_reader_of_one_vchannel_sees_its_part_of_what_a_reader_of_all_sees(log: list[At]) -> None:
    everything = packs(log)
    for vchannel in (A, B):
        own = packs(log, PackAssembler(vchannels=[vchannel]))
        assert [(p.end_ts, list(p.entries)) for p in own] == [
            (p.end_ts, [at for at in p.entries if at.header.vchannel == vchannel]) for p in everything
        ]
