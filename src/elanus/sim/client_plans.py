"""The operations of clients that import, clone, alter or use partitions, and the seeds that have them.

Each choice has a random stream of its own, so the other clients of a seed do the same with and without these.
"""

from __future__ import annotations

import random
from collections.abc import Iterator, Mapping

from elanus.sim.scenario import Fault, FaultKind, Operation, Scenario

PARTITIONED = "delta"
"""A collection with many partitions."""
PARTITIONED_SHARDS = 1
PARTITIONS = tuple(f"p{number}" for number in range(1, 25))
"""Its partitions: more than a flush job keeps open files for."""

OF_IMPORTS: Mapping[str, float] = {
    "import": 20,
    "delete_imported": 6,
    "count": 6,
    "query": 8,
    "query_again": 4,
    "search": 4,
    "compact": 2,
}
"""The operations of clients that import, weighted by frequency."""
OF_PARTITIONS: Mapping[str, float] = {
    "insert": 20,
    "upsert": 8,
    "insert_everywhere": 5,
    "delete": 6,
    "delete_where": 2,
    "renew_partition": 6,
    "flush": 3,
    "count": 6,
    "query": 8,
    "query_again": 4,
}
"""The operations of clients of the collection with many partitions, weighted by frequency."""
CLONED = "epsilon"
"""A collection that is cloned."""
CLONED_SHARDS = 2
OF_CLONES: Mapping[str, float] = {
    "insert": 14,
    "upsert": 6,
    "delete": 8,
    "flush": 2,
    "compact": 2,
    "query": 3,
    "clone": 6,
    "take_snapshot": 2,
    "restore": 2,
    "use_clone": 24,
    "drop_clone": 5,
    "undrop": 3,
}
"""The operations of clients that clone, weighted by frequency."""
KEYED = "zeta"
"""A collection with a partition key: the value, which an upsert changes. So it moves rows to another
partition."""
KEYED_SHARDS = 2
KEYED_PARTITIONS = 4
OF_KEYED: Mapping[str, float] = {
    "insert": 14,
    "upsert": 24,
    "delete": 6,
    "delete_where": 2,
    "flush": 3,
    "compact": 2,
    "count": 6,
    "query": 10,
    "query_where": 3,
    "query_values": 8,
    "query_again": 4,
    "search": 5,
    "import": 6,
    "delete_imported": 2,
}
"""The operations of clients of the collection with a partition key, weighted by frequency."""
OF_ALTERATIONS: Mapping[str, float] = {
    "alter": 12,
    "flush": 2,
    "count": 5,
    "query": 8,
    "search": 4,
}
"""The operations of clients that alter collections, weighted by frequency."""
WIDENED = "eta"
"""A collection that gets a field, loses it, gets another of the same name, and so on."""
WIDENED_SHARDS = 2
OF_WIDENED: Mapping[str, float] = {
    "insert": 20,
    "upsert": 12,
    "delete": 6,
    "delete_where": 2,
    "flush": 4,
    "compact": 3,
    "count": 5,
    "query": 4,
    "query_wide": 16,
    "query_again": 3,
    "search": 4,
    "change_fields": 6,
}
"""The operations of clients of the collection whose fields change, weighted by frequency."""
PARTLY = "theta"
"""A collection of which not all partitions are loaded at all times."""
PARTLY_SHARDS = 2
PARTLY_PARTITIONS = ("q1", "q2", "q3")
OF_PARTLY: Mapping[str, float] = {
    "insert": 20,
    "upsert": 8,
    "delete": 6,
    "delete_where": 2,
    "flush": 4,
    "compact": 3,
    "count": 8,
    "query": 14,
    "query_where": 4,
    "query_again": 3,
    "search": 6,
}
"""The operations of clients of this collection, weighted by frequency."""
OF_LOADS: Mapping[str, float] = {"change_load": 10, "count": 2, "query": 3}
"""The operations of its client that loads and releases partitions, weighted by frequency."""
OF_IMPORTERS = ("import", "delete_imported")
"""Those that only clients that import have."""
ADDED_OPERATIONS = (*OF_IMPORTERS, "insert_everywhere")
"""Those that no other client has."""
RELOADING = ("reload", "renew_collection", "clone", "restore", "undrop", "change_fields", "change_load")
"""Operations after which a read waits for a load."""

_IMPORTS = 0.3
_MANY_PARTITIONS = 0.15
_CLONES = 0.12
_ALTERATIONS = 0.2
_ALTERATION_SEED_MIN = 200
"""Earlier seeds have none, as with clusters."""
_KEYED = 0.2
_KEYED_SEED_MIN = 220
"""As with alterations."""
_WIDENED = 0.2
_WIDENED_SEED_MIN = 240
"""As with alterations."""
_PARTLY = 0.2
_PARTLY_SEED_MIN = 260
"""As with alterations."""
_REPLACEMENTS = 0.2
_REPLACEMENT_SEED_MIN = 240
"""As with alterations."""
_REPLACED = 5.0
"""How often, on average."""
_BEHIND_MAX_S = 2.5
_CLUSTERS = 0.5
_CLUSTER_SEED_MIN = 150
"""Earlier seeds have none: the planted bugs are found in the schedules that they had before."""
_ONLY_LAGS = 0.06
_LAGS = 8.0
"""How many, where nothing else strikes."""


def has_imports(seed: int) -> bool:
    return random.Random(f"{seed}/imports").random() < _IMPORTS


def has_many_partitions(seed: int) -> bool:
    return random.Random(f"{seed}/many partitions").random() < _MANY_PARTITIONS


def has_clones(seed: int) -> bool:
    return random.Random(f"{seed}/clones").random() < _CLONES


def has_alterations(seed: int) -> bool:
    return seed >= _ALTERATION_SEED_MIN and random.Random(f"{seed}/alterations").random() < _ALTERATIONS


def has_partition_key(seed: int) -> bool:
    return seed >= _KEYED_SEED_MIN and random.Random(f"{seed}/partition key").random() < _KEYED


def has_changing_fields(seed: int) -> bool:
    return seed >= _WIDENED_SEED_MIN and random.Random(f"{seed}/changing fields").random() < _WIDENED


def has_partial_loads(seed: int) -> bool:
    return seed >= _PARTLY_SEED_MIN and random.Random(f"{seed}/partial loads").random() < _PARTLY


def has_replacements(seed: int) -> bool:
    """Whether rootcoord is replaced without knowing it, while some of its callers do not know it either."""
    return seed >= _REPLACEMENT_SEED_MIN and random.Random(f"{seed}/replacements").random() < _REPLACEMENTS


def replacements(seed: int, callers: tuple[str, ...], first_s: float, work_s: float) -> Iterator[Fault]:
    """Draw the moments, the callers that do not know it yet, and for how long."""
    chance = random.Random(f"{seed}/moments of replacements")
    at_s = first_s
    while (at_s := at_s + chance.expovariate(_REPLACED / (work_s - first_s))) < work_s:
        behind = sorted(chance.sample(callers, chance.randint(1, 2)))
        amount = round(chance.uniform(0.2, _BEHIND_MAX_S), 6)
        yield Fault(at_s, FaultKind.REPLACE_ROOT, "|".join(behind), amount)


def clusters(seed: int) -> bool:
    """Whether the compactions that clients of a seed ask for are by the clustering key."""
    return seed >= _CLUSTER_SEED_MIN and random.Random(f"{seed}/clusters").random() < _CLUSTERS


def only_lags(seed: int) -> bool:
    """Whether lagging query nodes are the only fault of a seed. Weak reads must not wait there."""
    return random.Random(f"{seed}/only lags").random() < _ONLY_LAGS


def is_undisturbed(scenario: Scenario) -> bool:
    """Whether nothing but a lagging node can make a read wait, so that weak reads can be timed."""
    lags = all(fault.kind is FaultKind.NODE_LAGS for fault in scenario.faults)
    return lags and all(operation.kind not in RELOADING for operation in scenario.operations)


def operations_of_client(
    seed: int,
    client: int,
    weights: Mapping[str, float],
    collections: tuple[str, ...],
    pause_s: float,
    work_s: float,
) -> Iterator[Operation]:
    """Draw the operations of one client, all with the number 0. ``pause_s``: the mean time between two."""
    chance = random.Random(f"{seed}/client {client}")
    at_s = 0.0
    while (at_s := at_s + chance.uniform(0, 2 * pause_s)) < work_s:
        (kind,) = chance.choices(tuple(weights), tuple(weights.values()))
        yield Operation(at_s, client, kind, chance.choice(collections), 0)


def lags(seed: int, query_nodes: tuple[str, ...], first_s: float, work_s: float) -> Iterator[Fault]:
    """Draw the faults of a seed of `only_lags`.

    A node that lags does not begin to lag again: it would fall behind the retention time, before which weak
    reads do wait for it.
    """
    chance = random.Random(f"{seed}/lags")
    at_s = first_s
    until_s: dict[str, float] = {}
    while (at_s := at_s + chance.expovariate(_LAGS / (work_s - first_s))) < work_s:
        node, lag_s = chance.choice(query_nodes), round(chance.uniform(3, 8), 6)
        if at_s > until_s.get(node, 0.0):
            yield Fault(at_s, FaultKind.NODE_LAGS, node, lag_s)
            until_s[node] = at_s + lag_s
