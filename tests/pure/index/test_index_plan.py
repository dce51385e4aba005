"""The plan: monotone where it must be, bounded always."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from elanus.index import plan


def breadth(
    visible: int,
    k: int = 10,
    ef: int = 16,
    queries: int = 1,
    share: float | None = None,
    previous_ef: int = 0,
) -> int | None:
    return plan.breadth(
        rows=60_000,
        visible=visible,
        dim=784,
        links=16,
        k=k,
        ef=ef,
        queries=queries,
        share=visible / 60_000 if share is None else share,
        previous_ef=previous_ef,
    )


def test_without_a_filter_the_asked_ef_is_walked() -> None:
    assert breadth(60_000, ef=24) == 24


def test_under_a_filter_ef_makes_room_for_invisible_rows() -> None:
    assert breadth(30_000, ef=64) == 128
    assert breadth(30_000, ef=16) == 64  # 32 visible rows at least
    assert breadth(30_000, k=100, ef=100) == 243  # k + 3·√(k·½) visible rows at least


def test_few_hidden_rows_need_little_spare() -> None:
    assert breadth(59_400, k=100, ef=100) == 105  # a hundredth is hidden
    assert breadth(59_400) == 33  # 32 visible rows at least


def test_few_visible_rows_are_compared_one_by_one() -> None:
    assert breadth(60) is None
    assert breadth(600) is None
    assert breadth(3_000) is None


def test_asking_for_most_rows_is_an_exact_scan() -> None:
    assert breadth(60_000, k=16_384, ef=16_384) is None


def test_a_repeated_walk_is_broader_or_none() -> None:
    assert breadth(30_000, share=0.2, previous_ef=64) == 160
    assert breadth(30_000, share=0.5, previous_ef=64) == 128
    assert breadth(30_000, share=0.001, previous_ef=64) is None


@given(
    rows=st.integers(1, 10**7),
    visible_share=st.floats(0.0, 1.0),
    dim=st.integers(2, 4096),
    links=st.integers(2, 2048),
    k=st.integers(1, 16_384),
    ef=st.integers(1, 2**31 - 1),
    queries=st.integers(1, 1000),
    previous_ef=st.integers(0, 10**7),
)
def test_a_walk_is_never_wider_than_the_index_nor_narrower_than_k(
    rows: int, visible_share: float, dim: int, links: int, k: int, ef: int, queries: int, previous_ef: int
) -> None:
    visible = max(1, int(rows * visible_share))
    k = min(k, visible)
    chosen = plan.breadth(
        rows=rows,
        visible=visible,
        dim=dim,
        links=links,
        k=k,
        ef=ef,
        queries=queries,
        share=visible / rows,
        previous_ef=previous_ef,
    )
    assert chosen is None or max(k, previous_ef + 1) <= chosen <= rows


@given(nprobe=st.integers(1, 65_536), lists=st.integers(1, 65_536), share=st.floats(1e-6, 1.0))
def test_probes_grow_with_the_hidden_share_up_to_all_lists(nprobe: int, lists: int, share: float) -> None:
    probes = plan.probes(nprobe, lists, share)
    assert min(nprobe, lists) <= probes <= lists
    assert probes == lists or probes * share >= nprobe * 0.999


def test_a_batch_shares_the_cost_of_fetching_rows() -> None:
    assert plan.exact_cost_ns(1000, 784, 100) < plan.exact_cost_ns(1000, 784, 1) / 2
