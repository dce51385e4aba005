"""Small delta logs of a vchannel are merged, and no delete is rewritten often or held back for long."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from elanus.core.delta_merging import MERGED_BYTES_MAX, choose_deltas
from elanus.core.segments import BinlogFile, DeltaLog
from elanus.core.timestamps import MAX_TIMESTAMP, NO_TIMESTAMP, compose, physical_ms

KB = 1000
RETENTION_S = 800.0
SPAN_MS = 100_000


def delta(number: int, size_bytes: int = KB, *, since_ms: int = 0, until_ms: int = 0) -> DeltaLog:
    """One of a second, by its number."""
    begin, end = since_ms or number * 1000, until_ms or number * 1000 + 999
    return DeltaLog("v", BinlogFile(f"delta_log/{number:05}", 10, size_bytes, compose(begin), compose(end)))


def numbers(chosen: tuple[DeltaLog, ...]) -> list[int]:
    return [int(log.file.path.rsplit("/")[-1]) for log in chosen]


def chosen(*logs: DeltaLog, bound_ms: int = 0, count_min: int = 4) -> list[int]:
    return numbers(choose_deltas(logs, compose(bound_ms), RETENTION_S, count_min))


def test_few_are_left_as_they_are_and_many_are_merged() -> None:
    assert chosen(*(delta(n) for n in range(1, 4))) == []
    assert chosen(*(delta(n) for n in reversed(range(1, 5)))) == [1, 2, 3, 4], "by their times"
    assert chosen() == []


def test_those_that_may_be_folded_in_are_not_merged_with_later_ones() -> None:
    logs = [delta(n) for n in range(1, 10)]
    assert chosen(*logs, bound_ms=6000) == [1, 2, 3, 4, 5]
    assert chosen(*logs[:7], bound_ms=5000) == [1, 2, 3, 4]
    assert chosen(*logs[:7], bound_ms=4000) == [4, 5, 6, 7], "the oldest are too few"


def test_a_merged_one_spans_a_part_of_the_retention_only_until_it_may_be_folded_in() -> None:
    logs = [delta(n, since_ms=n * 30_000, until_ms=n * 30_000 + 1) for n in range(1, 10)]
    assert chosen(*logs) == [1, 2, 3, 4]
    assert chosen(*logs, count_min=5) == []
    assert chosen(*logs, bound_ms=10**9, count_min=5) == list(range(1, 10))


def test_a_large_one_is_not_rewritten_for_the_sake_of_small_ones() -> None:
    large = delta(5, 100 * KB)
    small = [delta(n) for n in range(1, 5)]
    assert chosen(*small, large) == [1, 2, 3, 4]
    assert chosen(*small[:3], large, delta(6), delta(7)) == [], "each side is too few"
    assert chosen(large, *(delta(n) for n in range(6, 10))) == [6, 7, 8, 9]


def test_a_merged_one_has_a_size_limit() -> None:
    third = MERGED_BYTES_MAX // 3
    logs = [delta(n, third) for n in range(1, 8)]
    assert chosen(*logs, count_min=3) == [1, 2, 3]
    assert chosen(*logs, count_min=4) == []


@given(
    st.lists(st.tuples(st.integers(1, 60), st.integers(1, 10**8)), min_size=1, max_size=40),
    st.integers(0, 3_000),
    st.integers(2, 6),
)
def test_merging_goes_on_until_nothing_is_worth_it(
    steps: list[tuple[int, int]], bound_s: int, count_min: int
) -> None:
    logs, now_ms = dict[str, DeltaLog](), 1000
    for number, (seconds, size_bytes) in enumerate(steps):
        logs[f"{number}"] = delta(number, size_bytes, since_ms=now_ms, until_ms=now_ms + seconds * 1000 - 1)
        now_ms += seconds * 1000
    rows, merges = sum(log.file.rows for log in logs.values()), 0
    known = {log.file.path: log for log in logs.values()}
    bound = compose(bound_s * 1000)
    while found := choose_deltas(known.values(), bound, RETENTION_S, count_min):
        merges += 1
        assert len(found) >= count_min
        sizes = [log.file.size_bytes for log in found]
        assert sum(sizes) <= MERGED_BYTES_MAX
        assert 2 * max(sizes) <= sum(sizes)
        since = min((log.file.ts_min for log in found), default=MAX_TIMESTAMP)
        until = max((log.file.ts_max for log in found), default=NO_TIMESTAMP)
        assert len({log.file.ts_max <= bound for log in found}) == 1
        assert until <= bound or physical_ms(until) - physical_ms(since) <= SPAN_MS
        for log in found:
            del known[log.file.path]
        merged = BinlogFile(
            f"delta_log/{90000 + merges}", sum(log.file.rows for log in found), sum(sizes), since, until
        )
        known[merged.path] = DeltaLog("v", merged)
    assert sum(log.file.rows for log in known.values()) == rows
    assert merges <= len(steps)
