"""Draws the scenario of a seed.

Everything is drawn here, from the seed alone. How often each kind of fault occurs differs from seed to seed
(some kinds not at all, some twice as often): an even mix of all faults would never find a bug that shows only
while one part is undisturbed and another is not.
"""

from __future__ import annotations

import random
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace

from elanus.core.channels import pchannel_name
from elanus.sim.aliases import ALIAS
from elanus.sim.client_plans import (
    CLONED,
    KEYED,
    OF_ALTERATIONS,
    OF_CLONES,
    OF_IMPORTS,
    OF_KEYED,
    OF_LOADS,
    OF_PARTITIONS,
    OF_PARTLY,
    OF_WIDENED,
    PARTITIONED,
    PARTLY,
    RELOADING,
    WIDENED,
    clusters,
    has_alterations,
    has_changing_fields,
    has_clones,
    has_imports,
    has_many_partitions,
    has_partial_loads,
    has_partition_key,
    has_replacements,
    lags,
    only_lags,
    operations_of_client,
    replacements,
)
from elanus.sim.scenario import Fault, FaultKind, Operation, Scenario

COLLECTIONS = {"alpha": 2, "beta": 1}
"""The collections of every run, with the number of shards of each."""
EXPIRING = "beta"
"""The collection whose rows expire, in runs where some do."""
AUTO_IDS = "gamma"
"""A collection with automatic keys, which half of the seeds have."""
AUTO_IDS_SHARDS = 2
PCHANNELS = tuple(pchannel_name(number) for number in range(2))
PROXIES = ("proxy-1", "proxy-2")
COORDINATORS = ("rootcoord", "datacoord", "indexcoord", "querycoord")
ROLES = ("rootcoord", "datacoord", "indexcoord", "querynode", "querycoord", *PROXIES)
PIPELINES = ("pipeline", "pipeline-2")
"""Processes that are both data node and index node. A standalone has one, a cluster has two."""
QUERY_NODES = ("querynode", "querynode-2", "querynode-3")
"""A single node runs in its proxies' process; several form a cluster behind query channels."""
MIRROR = "mirror"
"""The serving process of runs that have one (`elanus.sim.mirrors`)."""

STRUCK = (
    "announce",
    "build_index",
    "channel_dropped",
    "commit_compaction",
    "commit_range",
    "compact",
    "create_collection",
    "create_partition",
    "drop_collection",
    "drop_partition",
    "flush",
    "return_allocations",
    "load",
    "load_segment",
    "register_datanode",
    "release",
    "sweep",
    "watch_channels",
    "watch_vchannel",
    "write",
)
"""Calls with permanent effects: the moments at which a fault is most valuable."""

OPERATIONS: Mapping[str, float] = {
    "insert": 30,
    "upsert": 12,
    "delete": 10,
    "delete_where": 3,
    "flush": 3,
    "compact": 2,
    "count": 13,
    "query": 12,
    "query_where": 5,
    "query_again": 5,
    "search": 6,
    "renew_partition": 2,
    "renew_collection": 0.5,
    "reload": 0.7,
}
"""The operations of clients, weighted by frequency."""
_BY_ALIAS: Mapping[str, float] = {
    "insert": 30,
    "upsert": 10,
    "delete": 6,
    "delete_where": 2,
    "count": 8,
    "query": 8,
    "query_again": 3,
    "search": 5,
}
"""The operations of clients that name the collection by its alias, weighted by frequency."""
OPERATIONS_OF_ALIASES: Mapping[str, float] = {"switch_alias": 14, "write_misfit": 2}
"""The operations of these clients in addition to the collections that the alias means in turn."""
_OF_AUTO_IDS: Mapping[str, float] = {
    "insert": 20,
    "upsert": 30,
    "delete": 10,
    "flush": 2,
    "count": 6,
    "query": 8,
    "query_where": 3,
    "query_again": 3,
    "search": 4,
}
"""The operations of clients of the collection with automatic keys, weighted by frequency."""

_K = FaultKind
FAULTS: Mapping[FaultKind, float] = {
    _K.CRASH: 1.5,
    _K.CRASH_SOON: 1.0,
    _K.CRASH_ALL: 0.5,
    _K.CRASH_PIPELINE: 0.5,
    _K.STALL_PIPELINE: 0.8,
    _K.PAUSE_PIPELINE: 0.8,
    _K.RESTART: 1.0,
    _K.LOSE_POWER: 0.4,
    _K.STEP_CLOCK: 0.5,
    _K.SKEW_CLOCK: 0.3,
    _K.PARTITION: 0.7,
    _K.LOSE_CALL: 40,
    _K.LOSE_ANSWER: 40,
    _K.DOUBLE_CALL: 40,
    _K.DELAY_CALL: 60,
    _K.DELAY_ANSWER: 60,
    _K.CRASH_CALLER: 2,
    _K.CRASH_CALLEE: 2,
    _K.PAUSE_CALLEE: 3,
    _K.LOG_FULL: 2,
    _K.LOG_SLOW: 30,
    _K.CRASH_APPENDING: 3,
    _K.META_SLOW: 30,
    _K.STORE_FULL: 1,
    _K.STORE_AWAY: 1,
    _K.CHANNELS_LOST: 0.5,
    _K.CHANNEL_SLOW: 20,
    _K.JOB_FAILED: 1.5,
    _K.JOB_TWICE: 4,
    _K.JOB_SLOW: 2,
    _K.PCHANNEL_FULL: 1,
    _K.STORE_SLOW: 6,
    _K.NODE_LAGS: 1.5,
    _K.REVOKE_LEASE: 1.0,
}
"""The mean number of each kind of fault per run."""
_INTENSITIES = (0.0, 0.5, 1.0, 1.0, 2.0)
_STEPS_MS = (-86_400_000, -5_000, -200, 200, 2_000, 86_400_000)
_SKEWS_MS = (-3_000, -100, 100, 3_000)
_AUTO_IDS = 0.5
"""The share of seeds with a collection with automatic keys."""
_PICKY = 0.3
"""The share of call faults that wait for one of `STRUCK`."""
_ALWAYS_PICKY = frozenset({_K.CRASH_CALLER, _K.CRASH_CALLEE})
_OF_CALLS = frozenset({_K.LOSE_CALL, _K.LOSE_ANSWER, _K.DOUBLE_CALL, _K.DELAY_CALL, _K.DELAY_ANSWER})
_SECONDS_MAX: Mapping[FaultKind, float] = {
    _K.DELAY_CALL: 0.8,
    _K.DELAY_ANSWER: 0.8,
    _K.DOUBLE_CALL: 2.0,
    _K.CRASH_CALLER: 0.02,
    _K.CRASH_CALLEE: 0.02,
    _K.PAUSE_CALLEE: 9.0,
    _K.LOG_SLOW: 0.5,
    _K.META_SLOW: 0.3,
    _K.CHANNEL_SLOW: 0.5,
    _K.JOB_SLOW: 6.0,
    _K.STALL_PIPELINE: 12.0,
    _K.PAUSE_PIPELINE: 9.0,
    _K.PARTITION: 4.0,
    _K.PCHANNEL_FULL: 6.0,
    _K.STORE_SLOW: 4.0,
    _K.NODE_LAGS: 6.0,
}
_STEPS_MAX = 8
_OF_CHANNELS = frozenset({_K.CHANNELS_LOST, _K.CHANNEL_SLOW})
_OF_PIPELINES = frozenset({_K.CRASH_PIPELINE, _K.STALL_PIPELINE, _K.PAUSE_PIPELINE})


@dataclass(frozen=True, slots=True)
class Profile:
    """The kind of scenarios to draw.

    ``pause_s``: the mean time between two operations of a client. ``alias_clients``: additional clients that
    use the alias and switch it. ``auto_id_clients``: additional clients of the collection with automatic
    keys, in the seeds that have it. ``import_clients`` and ``partition_clients``: the same for imports and
    for the collection with many partitions; ``clone_clients``: for one that is cloned; ``altering_clients``:
    for alterations; ``key_clients``: for the collection with a partition key; ``widening_clients``: for the
    one whose fields change; ``partly_clients``: for the one whose partitions are loaded one by one, in
    addition to the client that loads them (none: no such collection). ``only_lags``: whether some seeds have
    lagging nodes only; ``replaces``: whether in some rootcoord is replaced without knowing it.
    ``work_s``: how long the clients work; ``first_fault_s``: when the first fault may strike; ``faults``: the
    mean number of each kind in that time.
    """

    clients: int = 4
    alias_clients: int = 2
    auto_id_clients: int = 2
    import_clients: int = 2
    partition_clients: int = 1
    clone_clients: int = 1
    altering_clients: int = 1
    key_clients: int = 2
    widening_clients: int = 3
    partly_clients: int = 2
    only_lags: bool = True
    replaces: bool = True
    work_s: float = 54.0
    first_fault_s: float = 3.0
    pause_s: float = 0.72
    faults: Mapping[FaultKind, float] = field(default_factory=lambda: FAULTS)


CALM = Profile(faults={}, only_lags=False, replaces=False)
"""A profile without faults."""
USUAL = Profile()
_BRIEF_S = 4.0
BRIEF = Profile(
    work_s=_BRIEF_S,
    first_fault_s=0.5,
    faults={kind: 2 * mean * _BRIEF_S / USUAL.work_s for kind, mean in FAULTS.items()},
)
"""Little work under twice as many faults a second: for as many different setups and ends as possible."""


def draw(seed: int, profile: Profile = USUAL) -> Scenario:
    """Draw the scenario of a seed. The result is always the same, on every machine."""
    operations = sorted(_operations(seed, profile), key=lambda o: (o.at_s, o.client))
    if clusters(seed):
        operations = [replace(o, kind="cluster") if o.kind == "compact" else o for o in operations]
    drawn = list(_faults(seed, profile))
    if profile.replaces and has_replacements(seed):
        drawn += replacements(seed, (*PROXIES, *COORDINATORS[1:]), profile.first_fault_s, profile.work_s)
    faults = sorted(drawn, key=lambda f: (f.at_s, f.kind, f.target))
    if profile.only_lags and only_lags(seed):
        operations = [operation for operation in operations if operation.kind not in RELOADING]
        faults = list(lags(seed, draw_reading(seed).query_nodes, profile.first_fault_s, profile.work_s))
    return Scenario(seed, profile.work_s, tuple(operations), tuple(faults))


def draw_pipelines(seed: int) -> tuple[str, ...]:
    """Draw the pipeline processes of a seed. The result is always the same, on every machine."""
    return PIPELINES[: random.Random(f"{seed}/pipelines").choice((1, 2))]


@dataclass(frozen=True, slots=True)
class Reading:
    """The query nodes that serve reads. ``replicas``: of every collection. ``has_mirror``: whether a serving
    process mirrors the single node."""

    query_nodes: tuple[str, ...] = QUERY_NODES[:1]
    replicas: int = 1
    has_mirror: bool = False

    @property
    def is_cluster(self) -> bool:
        return len(self.query_nodes) > 1


ONE_NODE = Reading()
MIRRORED = Reading(has_mirror=True)
_READINGS = (
    *(ONE_NODE,) * 12,
    Reading(QUERY_NODES[:2]),
    Reading(QUERY_NODES),
    Reading(QUERY_NODES[:2], 2),
    Reading(QUERY_NODES, 2),
)


def draw_reading(seed: int) -> Reading:
    """Draw the query nodes of a seed: the same on every machine. Three quarters of the seeds have one."""
    return random.Random(f"{seed}/query nodes").choice(_READINGS)


def roles_of(reading: Reading) -> tuple[str, ...]:
    others = (name for name in reading.query_nodes if name not in ROLES)
    return (*ROLES, *others, *((MIRROR,) if reading.has_mirror else ()))


def _operations(seed: int, profile: Profile) -> Iterator[Operation]:
    number = 0
    for client in range(profile.clients):
        chance = random.Random(f"{seed}/client {client}")
        at_s = 0.0
        while (at_s := at_s + chance.uniform(0, 2 * profile.pause_s)) < profile.work_s:
            number += 1
            (kind,) = chance.choices(tuple(OPERATIONS), tuple(OPERATIONS.values()))
            yield Operation(at_s, client, kind, chance.choice(tuple(COLLECTIONS)), number)
    for client in range(profile.clients, profile.clients + profile.alias_clients):
        chance = random.Random(f"{seed}/client {client}")
        weights = {**_BY_ALIAS, **OPERATIONS_OF_ALIASES}
        at_s = 0.0
        while (at_s := at_s + chance.uniform(0, 4 * profile.pause_s)) < profile.work_s:
            number += 1
            (kind,) = chance.choices(tuple(weights), tuple(weights.values()))
            name = ALIAS if kind in _BY_ALIAS else chance.choice(tuple(COLLECTIONS))
            yield Operation(at_s, client, kind, name, number)
    first = profile.clients + profile.alias_clients
    auto_ids = random.Random(f"{seed}/auto ids").random() < _AUTO_IDS
    for client in range(first, first + profile.auto_id_clients if auto_ids else first):
        chance = random.Random(f"{seed}/client {client}")
        at_s = 0.0
        while (at_s := at_s + chance.uniform(0, 3 * profile.pause_s)) < profile.work_s:
            number += 1
            (kind,) = chance.choices(tuple(_OF_AUTO_IDS), tuple(_OF_AUTO_IDS.values()))
            yield Operation(at_s, client, kind, AUTO_IDS, number)
    for operation in _added_operations(seed, profile, first + profile.auto_id_clients):
        number += 1
        yield replace(operation, number=number)


def _added_operations(seed: int, profile: Profile, first: int) -> Iterator[Operation]:
    """Draw the operations of imports, many partitions, clones, alterations, a partition key, changing fields
    and partial loads. ``first``: the first client's number."""
    work_s, pause_s = profile.work_s, 2 * profile.pause_s
    partitions = first + profile.import_clients
    if has_imports(seed):
        for client in range(first, partitions):
            yield from operations_of_client(seed, client, OF_IMPORTS, tuple(COLLECTIONS), pause_s, work_s)
    if has_many_partitions(seed):
        for client in range(partitions, partitions + profile.partition_clients):
            yield from operations_of_client(seed, client, OF_PARTITIONS, (PARTITIONED,), pause_s, work_s)
    clones = partitions + profile.partition_clients
    if has_clones(seed):
        for client in range(clones, clones + profile.clone_clients):
            yield from operations_of_client(seed, client, OF_CLONES, (CLONED,), pause_s, work_s)
    altering = clones + profile.clone_clients
    if has_alterations(seed):
        for client in range(altering, altering + profile.altering_clients):
            yield from operations_of_client(seed, client, OF_ALTERATIONS, tuple(COLLECTIONS), pause_s, work_s)
    keyed = altering + profile.altering_clients
    if has_partition_key(seed):
        for client in range(keyed, keyed + profile.key_clients):
            yield from operations_of_client(seed, client, OF_KEYED, (KEYED,), pause_s, work_s)
    widening = keyed + profile.key_clients
    if has_changing_fields(seed):
        for client in range(widening, widening + profile.widening_clients):
            yield from operations_of_client(seed, client, OF_WIDENED, (WIDENED,), pause_s, work_s)
    partly = widening + profile.widening_clients
    if profile.partly_clients and has_partial_loads(seed):
        yield from operations_of_client(seed, partly, OF_LOADS, (PARTLY,), pause_s, work_s)
        for client in range(partly + 1, partly + 1 + profile.partly_clients):
            yield from operations_of_client(seed, client, OF_PARTLY, (PARTLY,), pause_s, work_s)


def collections_of(scenario: Scenario) -> tuple[str, ...]:
    """The collections that a scenario's run has."""
    used = {operation.collection for operation in scenario.operations}
    return (
        *COLLECTIONS,
        *(name for name in (AUTO_IDS, PARTITIONED, CLONED, KEYED, WIDENED, PARTLY) if name in used),
    )


def _faults(seed: int, profile: Profile) -> Iterator[Fault]:
    reading, pipelines = draw_reading(seed), draw_pipelines(seed)
    roles = roles_of(reading)
    targets = {_K.NODE_LAGS: reading.query_nodes, _K.PCHANNEL_FULL: PCHANNELS, _K.REVOKE_LEASE: PROXIES}
    for kind, mean in profile.faults.items():
        if kind in _OF_CHANNELS and not reading.is_cluster:
            continue
        chance = random.Random(f"{seed}/{kind}")
        rate = mean * chance.choice(_INTENSITIES) / (profile.work_s - profile.first_fault_s)
        at_s = profile.first_fault_s
        while rate and (at_s := at_s + chance.expovariate(rate)) < profile.work_s:
            places = targets.get(kind)
            target = chance.choice(places) if places else _target(kind, chance, roles, pipelines)
            yield Fault(at_s, kind, target, _amount(kind, chance))


def _target(
    kind: FaultKind, chance: random.Random, roles: tuple[str, ...], pipelines: tuple[str, ...]
) -> str:
    if kind in (_K.CRASH, _K.CRASH_SOON, _K.RESTART):
        return chance.choice(roles)
    if kind in _OF_PIPELINES:
        return chance.choice(pipelines)
    if kind is _K.SKEW_CLOCK:
        return chance.choice(("rootcoord", "datacoord", "indexcoord"))
    if kind is _K.PARTITION:
        return "|".join(chance.sample((*roles, *pipelines), 2))
    picky = kind in _ALWAYS_PICKY or (kind in _OF_CALLS and chance.random() < _PICKY)
    return chance.choice(STRUCK) if picky else ""


def _amount(kind: FaultKind, chance: random.Random) -> float:
    if kind is _K.STEP_CLOCK:
        return chance.choice(_STEPS_MS)
    if kind is _K.SKEW_CLOCK:
        return chance.choice(_SKEWS_MS)
    if kind is _K.CRASH_SOON:
        return chance.randrange(_STEPS_MAX)
    return round(chance.random() * _SECONDS_MAX.get(kind, 0.0), 6)
