"""Collections with automatic keys that keep the keys which clients send."""

from __future__ import annotations

from dataclasses import replace

import pyarrow as pa
import pytest
from fakes import collection, schema
from proxy_bench import Bench, resolved
from test_write_verbs import in_a_thread, rows

from elanus.core.catalog import Collection
from elanus.core.errors import InvalidParameter
from elanus.core.messages import InsertMessage, UpsertMessage
from elanus.core.sent_keys import ALLOW_INSERT_AUTO_ID, keeps_sent_keys
from elanus.proxy.api.writes import Insert


def keeping(value: str = "true") -> Collection:
    of = collection(schema(auto_id=True), shards=2)
    return replace(of, properties={ALLOW_INSERT_AUTO_ID: value})


def written(of: Collection, batch: pa.RecordBatch, *, replaces: bool) -> tuple[list[int], list[object]]:
    """The keys of the answer, and what the log has then."""
    keys: list[int] = []

    def work(bench: Bench) -> None:
        verb = bench.verbs.upsert if replaces else bench.verbs.insert
        keys.extend(verb(Insert(resolved(of), "", batch)).primary_keys.to_pylist())

    return keys, list(in_a_thread(of, work).messages())


def test_an_insert_keeps_the_keys_that_are_sent() -> None:
    keys, messages = written(keeping(), rows([5, 6, 7]), replaces=False)
    assert keys == [5, 6, 7]
    logged = [k for m in messages for k in m.rows["pk"].to_pylist() if isinstance(m, InsertMessage)]  # type: ignore[attr-defined]
    assert sorted(logged) == [5, 6, 7]


def test_rows_without_a_key_still_get_one() -> None:
    keys, _ = written(keeping(), rows([0, 0], with_key=False), replaces=False)
    assert len(set(keys)) == 2
    assert 0 not in keys


def test_an_upsert_replaces_a_row_under_its_key() -> None:
    keys, messages = written(keeping(), rows([5, 6]), replaces=True)
    assert keys == [5, 6]
    assert {type(m) for m in messages} == {UpsertMessage}
    assert sorted(k for m in messages for k in m.rows["pk"].to_pylist()) == [5, 6]  # type: ignore[attr-defined]
    fresh, _ = written(keeping("False"), rows([5, 6]), replaces=True)
    assert not {5, 6} & set(fresh)


def test_the_property_is_true_or_false() -> None:
    assert keeps_sent_keys({ALLOW_INSERT_AUTO_ID: "True"})
    assert not keeps_sent_keys({})
    with pytest.raises(InvalidParameter, match="allow_insert_auto_id is 'maybe': give true or false"):
        keeps_sent_keys({ALLOW_INSERT_AUTO_ID: "maybe"})
