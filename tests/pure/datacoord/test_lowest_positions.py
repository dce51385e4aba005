"""The lowest positions are those that a look at all vchannels would find, at a bounded cost."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from elanus.datacoord.lowest_positions import LowestPositions

NAMES = [f"dml_{n % 2}_{n}v0" for n in range(6)]
change = st.tuples(st.sampled_from(NAMES), st.none() | st.integers(0, 9))


def pchannel(name: str) -> str:
    return name.rpartition("_")[0]


@given(st.lists(change, max_size=60))
def test_they_are_those_of_all_vchannels(changes: list[tuple[str, int | None]]) -> None:
    positions, known = LowestPositions(), dict[str, int]()
    for name, position in changes:
        if position is None:
            positions.remove(name)
            known.pop(name, None)
        else:
            positions.place(name, position)
            known[name] = position
        expected: dict[str, int] = {}
        for other, at in known.items():
            expected[pchannel(other)] = min(expected.get(pchannel(other), at), at)
        assert positions.all() == expected
        assert {p: positions.of(p) for p in map(pchannel, NAMES)} == {
            p: expected.get(p) for p in map(pchannel, NAMES)
        }


def test_positions_that_were_replaced_do_not_pile_up() -> None:
    """One vchannel does not move, so nothing above it is ever looked at."""
    positions = LowestPositions()
    positions.place(NAMES[0], 1)
    for position in range(2, 10_000):
        positions.place(NAMES[2], position)
    assert positions.of(pchannel(NAMES[0])) == 1
    assert len(positions._pchannels[pchannel(NAMES[0])].heap) < 50
