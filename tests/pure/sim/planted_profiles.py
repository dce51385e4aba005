"""The kinds of runs in which planted bugs are hunted, where few of the usual seeds find one."""

from __future__ import annotations

from dataclasses import replace

from elanus.sim.plan import FAULTS, Profile
from elanus.sim.scenario import FaultKind

_K = FaultKind
_ADDED = frozenset({_K.PCHANNEL_FULL, _K.STORE_SLOW, _K.NODE_LAGS, _K.REVOKE_LEASE})
OLDER = Profile(
    import_clients=0,
    partition_clients=0,
    clone_clients=0,
    key_clients=0,
    partly_clients=0,
    only_lags=False,
    faults={kind: mean for kind, mean in FAULTS.items() if kind not in _ADDED},
)
"""Runs without imports, many partitions, a partition key, slow objects, lagging nodes, full pchannels and
revoked leases."""
_PLAIN = replace(OLDER, auto_id_clients=0)
_SLOW_CHANNELS = replace(_PLAIN, faults={_K.CHANNEL_SLOW: 300, _K.LOG_SLOW: 100, _K.RESTART: 3})
_BRIEF = Profile(
    auto_id_clients=0,
    alias_clients=0,
    partition_clients=0,
    clone_clients=0,
    key_clients=0,
    partly_clients=0,
    only_lags=False,
    work_s=25.0,
)
_IMPORTING = replace(_BRIEF, clients=2, faults={_K.META_SLOW: 30})
_SLOW_IMPORTS = replace(_BRIEF, clients=1, work_s=54.0, faults={_K.STORE_SLOW: 60})
_PARTITIONED = replace(_BRIEF, clients=1, import_clients=0, partition_clients=3, faults={_K.RESTART: 2})
_KEYED = replace(_BRIEF, clients=1, import_clients=0, key_clients=3, faults={_K.RESTART: 2})
_WIDENING = replace(_BRIEF, clients=1, import_clients=0, faults={_K.RESTART: 2})
_PARTLY = replace(_BRIEF, clients=1, import_clients=0, partly_clients=2, faults={_K.LOG_SLOW: 30})
_REPLACING = replace(_WIDENING, clients=3)
_SLOW_OBJECTS = replace(_BRIEF, import_clients=0, work_s=54.0, faults={_K.STORE_SLOW: 25, _K.RESTART: 12})
_ONLY_LAGS = replace(_BRIEF, import_clients=0, only_lags=True, work_s=54.0)
_READ_OFTEN = replace(_ONLY_LAGS, clients=8, pause_s=0.3)
_FULL = replace(_BRIEF, import_clients=0, faults={_K.PCHANNEL_FULL: 4})
_CLONING = replace(_BRIEF, clients=1, import_clients=0, clone_clients=2, faults={}, work_s=54.0)
_CLUSTERING = replace(_BRIEF, import_clients=0, work_s=40.0, faults={_K.CHANNEL_SLOW: 10, _K.STORE_SLOW: 4})
_REVOKING = replace(_BRIEF, import_clients=0, faults={_K.REVOKE_LEASE: 20, _K.LOG_SLOW: 30})
_RARELY_WRITING = replace(
    _REVOKING, clients=2, pause_s=2.0, work_s=54.0, faults={_K.REVOKE_LEASE: 80, _K.LOG_SLOW: 30}
)
_CALM = replace(_BRIEF, import_clients=0, faults={})
PROFILES = {
    "late rule dropped": _PLAIN,
    "versions mixed": _SLOW_CHANNELS,
    "imported rows as old as their files": _IMPORTING,
    "imported segments with moments of their own": _IMPORTING,
    "import completed before it is served": _SLOW_IMPORTS,
    "deletes of an upsert left out": _IMPORTING,
    "deletes of an upsert at its commit": _IMPORTING,
    "first row of a key stays in an upsert": _IMPORTING,
    "cancelled import committed": _SLOW_IMPORTS,
    "spilled rows forgotten": _PARTITIONED,
    "drop takes all partitions": _PARTITIONED,
    "upserts delete next to their rows": _KEYED,
    "partition of another value": _KEYED,
    "values of the field before": _WIDENING,
    "schema changed under its old epoch": _WIDENING,
    "replaced oracle believed": _REPLACING,
    "rows of a new partition not taken in": _PARTLY,
    "deletes looked up before the load": _SLOW_OBJECTS,
    "weak reads as of the newest node": _ONLY_LAGS,
    "weak reads sent to any replica": _READ_OFTEN,
    "partly written acknowledged": _FULL,
    "refused write stays unfinished": _FULL,
    "counted out without a fence": _REVOKING,
    "first append not confirmed": _RARELY_WRITING,
    "sealed for memory at once": _CALM,
    "references of clones ignored": _CLONING,
    "clone forgets the last deletes": _CLONING,
    "clone has later rows": _CLONING,
    "restore forgets its index files": _CLONING,
    "shared index files ignored": _CLONING,
    "missing index files borrowed": _CLONING,
    "rows lost when a cluster is split": _CLUSTERING,
    "clusters served one by one": _CLUSTERING,
}
