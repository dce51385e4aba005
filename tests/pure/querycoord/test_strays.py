"""Collections that nodes have, but that are not loaded."""

from __future__ import annotations

from counting import steps_of

from elanus.api.querynode import QueryNodePulse
from elanus.core.ids import CollectionID, NodeID
from elanus.querycoord.strays import Strays

A, B = NodeID(1), NodeID(2)


def pulses(**of: set[int]) -> dict[NodeID, QueryNodePulse]:
    nodes = {"a": A, "b": B}
    return {
        nodes[name]: QueryNodePulse(nodes[name], "", 0, (), {CollectionID(c): 1 for c in has}, {}, {}, {})
        for name, has in of.items()
    }


def test_what_appears_on_a_node_without_being_loaded_is_found_until_it_is_gone() -> None:
    strays = Strays({CollectionID(1)})
    assert strays.among(pulses(a={1}, b={1})) == []
    assert strays.among(pulses(a={1}, b={1, 2})) == [(B, 2)]
    assert strays.among(pulses(a={1}, b={1, 2})) == [(B, 2)], "its release may have failed"
    assert strays.among(pulses(a={1}, b={1})) == []
    assert strays.among(pulses(a={1, 3}, b={1, 2})) == [(A, 3), (B, 2)]


def test_what_was_released_is_found_on_the_nodes_that_still_have_it() -> None:
    loaded = {CollectionID(1), CollectionID(2)}
    strays = Strays(loaded)
    assert strays.among(pulses(a={1, 2}, b={1, 2})) == []
    loaded.remove(CollectionID(2))
    strays.released(CollectionID(2))
    assert strays.among(pulses(a={1}, b={1, 2})) == [(B, 2)]
    loaded.add(CollectionID(2))
    assert strays.among(pulses(a={1}, b={1, 2})) == [], "it is loaded again"


def test_a_node_that_did_not_answer_is_looked_at_as_a_whole() -> None:
    loaded = {CollectionID(1), CollectionID(2)}
    strays = Strays(loaded)
    assert strays.among(pulses(a={1, 2}, b={1, 2})) == []
    loaded.remove(CollectionID(2))
    strays.released(CollectionID(2))
    assert strays.among(pulses(a={1})) == []
    assert strays.among(pulses(a={1}, b={1, 2})) == [(B, 2)]


async def test_a_look_costs_the_same_with_ten_collections_as_with_a_thousand() -> None:
    steps = []
    for count in (10, 1000):
        ids = set(range(1, count + 1))
        strays = Strays({CollectionID(c) for c in ids})
        strays.among(pulses(a=ids))

        async def look(ids: set[int] = ids, strays: Strays = strays) -> None:
            now = pulses(a=ids | {2000})
            assert strays.among(now) == [(A, 2000)]

        steps.append(await steps_of(look))
    assert steps[0] == steps[1]
