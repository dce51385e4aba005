"""Roaring bitmaps of 64 bits: what clients write is read, and damaged bytes are refused."""

from __future__ import annotations

from random import Random

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from pymilvus import build_roaring_bitmap

from elanus.core import roaring
from elanus.core.roaring import RoaringBitmap

INT64 = st.integers(-(2**63), 2**63 - 1)
NEAR = st.integers(-200_000, 200_000)
HEAD_BYTES = 32


def body_of(members: list[int]) -> bytes:
    return build_roaring_bitmap(members)[HEAD_BYTES:]


def check(members: list[int], others: list[int]) -> None:
    bitmap = RoaringBitmap(body_of(members))
    wanted = set(members)
    assert bitmap.members == len(wanted)
    asked = [*members, *others]
    found = bitmap.contains(np.array(asked, np.int64))
    assert found.tolist() == [value in wanted for value in asked]


@given(members=st.lists(st.one_of(INT64, NEAR), max_size=200), others=st.lists(st.one_of(INT64, NEAR)))
def test_members_are_found_and_no_others(members: list[int], others: list[int]) -> None:
    check(members, others)


@pytest.mark.parametrize(
    "members",
    [
        [],
        [0],
        [-(2**63), -1, 0, 1, 2**63 - 1],
        list(range(100_000)),
        list(range(0, 300_000, 3)),
        list(range(0, 65_536, 2)),
        [*range(10), *range(70_000, 70_005)],
        [*range(0, 400_000, 2), *range(524_288, 589_824), *range(655_360, 705_360, 50)],
    ],
    ids=["empty", "one", "ends", "runs", "bits", "a container", "runs without a table", "all kinds"],
)
def test_containers_of_every_kind(members: list[int]) -> None:
    check(members, [*range(-1000, 720_000, 7)])


def test_sets_are_equal_if_their_bytes_are() -> None:
    one, same, other = (RoaringBitmap(body_of(members)) for members in ([1, 2], [2, 1], [1]))
    assert one == same
    assert hash(one) == hash(same)
    assert one != other


@pytest.mark.parametrize(
    ("body", "problem"),
    [
        (b"\x01", "it has 1 bytes, too few"),
        ((5).to_bytes(8, "little"), "it names 5 parts, more than 0"),
        ((1).to_bytes(8, "little") + b"\x00" * 12, "the part at byte 8 has the cookie 0"),
        (body_of([1, 2]) + b"\x00", "it has 1 bytes too many"),
        (body_of([1, 2])[:-1], "the part at byte 8 ends too early"),
        (body_of(list(range(9)))[:-1], "the part at byte 8 ends too early"),
    ],
)
def test_damaged_bytes_are_named(body: bytes, problem: str) -> None:
    with pytest.raises(ValueError, match=problem):
        RoaringBitmap(body)


def test_parts_and_containers_are_in_order() -> None:
    one, other = body_of([1])[8:], body_of([2**40])[8:]
    with pytest.raises(ValueError, match="its containers are out of order"):
        RoaringBitmap((2).to_bytes(8, "little") + other + one)


def test_a_set_that_takes_much_to_read_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(roaring, "READ_MAX_BYTES", 1000)
    with pytest.raises(ValueError, match="to read it takes more than 1000 bytes"):
        RoaringBitmap(body_of([number << 16 for number in range(20)]))


def test_any_bytes_are_read_or_refused() -> None:
    chance = Random(7)
    whole = body_of([*range(6), 70_000, *range(140_000, 140_100, 2), 2**40, 2**40 + 1])
    asked = np.arange(-100, 200_000, 37)
    refused = 0
    for _ in range(3000):
        damaged = bytearray(whole)
        for _ in range(chance.choice([1, 1, 2, 4])):
            damaged[chance.randrange(len(damaged))] = chance.randrange(256)
        body = bytes(damaged[: chance.randrange(len(damaged)) if chance.random() < 0.2 else None])
        try:
            RoaringBitmap(body).contains(asked)
        except ValueError:
            refused += 1
    assert 0 < refused < 3000
