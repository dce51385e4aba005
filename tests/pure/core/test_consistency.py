"""The demands of each consistency level on a read."""

from __future__ import annotations

import pytest

from elanus.core.consistency import ConsistencyLevel, ReadConsistency, guarantee_timestamp
from elanus.core.timestamps import compose

L = ConsistencyLevel
NOW = compose(100_000, 7)
STALE = compose(95_000, 7)
MOMENT = compose(60_000, 3)
AHEAD = compose(200_000)
GRACEFUL_MS = 5000


@pytest.mark.parametrize(
    ("asked", "said", "own", "expected"),
    [
        # the request's level decides, whatever the collection's is
        (L.STRONG, 0, L.EVENTUALLY, NOW),
        (L.BOUNDED, 0, L.STRONG, STALE),
        (L.EVENTUALLY, 0, L.STRONG, 1),
        # these three do not look at what the client sent
        (L.STRONG, MOMENT, L.BOUNDED, NOW),
        (L.BOUNDED, MOMENT, L.BOUNDED, STALE),
        (L.EVENTUALLY, MOMENT, L.BOUNDED, 1),
        # these two do: a timestamp, or one of the three special values
        (L.SESSION, MOMENT, L.STRONG, MOMENT),
        (L.CUSTOMIZED, MOMENT, L.STRONG, MOMENT),
        (L.SESSION, 0, L.STRONG, NOW),
        (L.SESSION, 1, L.STRONG, 1),
        (L.CUSTOMIZED, 2, L.STRONG, STALE),
        # even one that has not come yet: the read waits for it
        (L.SESSION, AHEAD, L.STRONG, AHEAD),
        (L.CUSTOMIZED, AHEAD, L.STRONG, AHEAD),
        (L.CUSTOMIZED, 2**64 - 1, L.STRONG, NOW),
        # no level in the request: the collection's
        (None, 0, L.STRONG, NOW),
        (None, 0, L.BOUNDED, STALE),
        (None, 0, L.EVENTUALLY, 1),
        (None, MOMENT, L.SESSION, MOMENT),
        (None, MOMENT, L.STRONG, NOW),
    ],
)
def test_the_guarantee_of_each_level(
    asked: ConsistencyLevel | None, said: int, own: ConsistencyLevel, expected: int
) -> None:
    assert guarantee_timestamp(ReadConsistency(asked, said), own, NOW, GRACEFUL_MS) == expected


def test_levels_have_the_numbers_of_the_wire() -> None:
    assert {level.name: level.value for level in L} == {
        "STRONG": 0,
        "SESSION": 1,
        "BOUNDED": 2,
        "EVENTUALLY": 3,
        "CUSTOMIZED": 4,
    }
