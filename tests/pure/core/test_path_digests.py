"""Sets of paths as digests."""

from __future__ import annotations

from hypothesis import given, settings
from hypothesis import strategies as st

from elanus.core.path_digests import NamedPaths, PathDigests, digests


@settings(deadline=None)
@given(st.lists(st.text(max_size=20)), st.lists(st.text(max_size=20)))
def test_every_named_path_is_found(named: list[str], others: list[str]) -> None:
    found = NamedPaths(digests(named)).of([*named, *others])
    assert found.tolist() == [path in set(named) for path in (*named, *others)]


def test_a_path_takes_eight_bytes() -> None:
    assert len(digests([f"insert_log/{n}" for n in range(1000)])) == 8000
    assert NamedPaths(digests([])).of([]).tolist() == []


def test_results_are_added_to_paths() -> None:
    before, more = digests(["a/1", "a/2"]), digests(["a/3"])
    assert digests(["a/2"], [before, more]) == digests(["a/1", "a/2", "a/3"])


_SETS = st.lists(st.sampled_from([f"{prefix}/{n}" for prefix in "abc" for n in range(4)]))


@settings(deadline=None)
@given(_SETS, _SETS)
def test_a_set_has_its_paths_and_those_of_a_union(some: list[str], others: list[str]) -> None:
    one, another = PathDigests.of(some), PathDigests.of(others)
    both = one | another | one
    for prefix in "abc":
        for n in range(4):
            path = f"{prefix}/{n}"
            assert (path in one, path in both) == (path in some, path in {*some, *others})
        assert digests((), both.within(prefix)) == digests(
            path for path in (*some, *others) if path.startswith(prefix)
        )
    assert bool(both) == bool(some or others)


def test_a_union_shares_what_its_parts_have() -> None:
    """A garbage collection asks three times what the same pins keep."""
    one = PathDigests.of(["a/1", "b/2"])
    (part,) = (one | one | PathDigests.union([one])).within("a")
    assert part is one.within("a")[0]
