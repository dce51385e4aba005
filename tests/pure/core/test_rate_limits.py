"""Token buckets, and what properties deny and limit."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from elanus.core.errors import ForceDenied, InvalidParameter
from elanus.core.rate_limits import (
    EVERYTHING,
    Action,
    Rate,
    TokenBucket,
    check_properties,
    of_collection,
    of_database,
    refuse_denied,
)

MB = 1024 * 1024


def test_a_bucket_gives_its_rate() -> None:
    bucket = TokenBucket(10, 100.0)
    assert [bucket.take(5, 10, 100.0) for _ in range(3)] == [True, True, False]
    assert not bucket.take(1, 10, 100.0)
    assert bucket.take(1, 10, 100.1)


def test_a_request_larger_than_the_bucket_is_answered_and_paid_for() -> None:
    bucket = TokenBucket(10, 0.0)
    assert bucket.take(100, 10, 0.0)
    assert not bucket.take(1, 10, 9.0)
    assert bucket.take(1, 10, 9.1)


def test_an_idle_bucket_holds_one_second() -> None:
    bucket = TokenBucket(10, 0.0)
    assert [bucket.take(5, 10, 1000.0) for _ in range(3)] == [True, True, False]


def test_a_changed_rate_holds_at_once() -> None:
    bucket = TokenBucket(1000, 0.0)
    assert bucket.take(1, 2, 0.0)
    assert [bucket.take(1, 2, 0.0) for _ in range(2)] == [True, False]


def test_a_rate_of_zero_gives_nothing() -> None:
    assert not TokenBucket(0, 0.0).take(1, 0, 1000.0)


@given(
    st.lists(st.tuples(st.floats(0, 0.5), st.integers(1, 20)), min_size=20, max_size=200),
    st.integers(1, 100),
)
def test_no_more_than_the_rate_is_given(requests: list[tuple[float, int]], rate: int) -> None:
    """Over any time: the rate, what a full bucket holds, and the one request that was larger."""
    bucket, now_s, given_tokens = TokenBucket(rate, 0.0), 0.0, 0
    for pause_s, tokens in requests:
        now_s += pause_s
        if bucket.take(tokens, rate, now_s):
            given_tokens += tokens
    assert given_tokens <= rate * (now_s + 1) + 20 + 1e-6


def test_a_demand_above_the_rate_gets_all_of_it() -> None:
    bucket = TokenBucket(100, 0.0)
    taken = sum(7 for step in range(10_000) if bucket.take(7, 100, step / 1000))
    assert 1000 <= taken <= 1.11 * 1000


def test_rates_of_a_collection() -> None:
    allowed = of_collection(
        {
            "collection.insertRate.max.mb": "2",
            "collection.searchRate.max.vps": "0.5",
            "collection.queryRate.max.qps": "-1",
            "collection.deleteRate.max.mb": "much",
            "collection.ttl.seconds": "7",
        }
    )
    assert allowed.rates == {Rate.INSERT: 2 * MB, Rate.SEARCH: 0.5}
    assert allowed.denied == frozenset()


@pytest.mark.parametrize("action", Action)
def test_switches_deny_what_they_name(action: Action) -> None:
    of = of_database({f"database.force.deny.{action}": "True"})
    own = of_collection({f"collection.force.deny.{action}": "true"})
    with pytest.raises(ForceDenied, match=f"database.force.deny.{action} is true for the database shop"):
        refuse_denied(action, "shop", of, "books", EVERYTHING)
    with pytest.raises(ForceDenied, match=f"collection.force.deny.{action} is true for the coll"):
        refuse_denied(action, "shop", EVERYTHING, "books", own)
    for other in set(Action) - {action}:
        refuse_denied(other, "shop", of, "books", own)


def test_a_switch_that_is_off_denies_nothing() -> None:
    assert of_database({"database.force.deny.writing": "false"}) == EVERYTHING
    assert of_collection({"database.force.deny.writing": "true"}) == EVERYTHING


@pytest.mark.parametrize(
    ("properties", "text"),
    [
        ({"collection.queryRate.max.qps": "many"}, "queryRate.max.qps=many.*give a number"),
        ({"collection.queryRate.max.qps": "nan"}, "give a number"),
        ({"database.diskQuota.mb": "all"}, "database.diskQuota.mb=all.*give a number"),
        ({"database.force.deny.ddl": "perhaps"}, "database.force.deny.ddl=perhaps.*give true or false"),
    ],
)
def test_values_without_meaning_are_refused(properties: dict[str, str], text: str) -> None:
    with pytest.raises(InvalidParameter, match=text):
        check_properties(properties)


def test_other_values_are_taken() -> None:
    check_properties({"collection.insertRate.max.mb": "-1", "database.force.deny.ddl": "false", "own": "x"})
