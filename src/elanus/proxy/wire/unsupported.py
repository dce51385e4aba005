"""RPCs and features that this release does not have, and what to use instead.

Every RPC of the service descriptor that no family implements answers `NotSupported` with a text from this
module. It never answers gRPC's UNIMPLEMENTED: clients of the 2.3 generation retry that for over a minute.
"""

from __future__ import annotations

from elanus.core.errors import NotSupported
from elanus.proxy.access.caller import Caller

IDEMPOTENCY_KEY = "Idempotency-Key"
"""The header that names a request, for imports over HTTP."""
_NO_ROW_RIGHTS = "grant privileges on collections, and put rows of different readers into different ones"
_NO_TAGS = "give users roles instead"
_NO_SNAPSHOTS = "stop the server and copy its data directory; RestoreSnapshot works within one server"
_NO_NAMESPACES = "use partitions or databases"
_NO_IMPORT = "name Parquet files in the RPC Import, or use `elanus import`"
_WHOLE_COMPACTION = "leave it out: what is worth compacting is chosen by the server"
_NO_EXTERNAL = "insert the rows into a collection"
_NO_REPLICATION = "insert into both servers"
_NO_FILE_RESOURCES = "put the words into analyzer_params"

INSTEAD: dict[str, str] = {
    "CalcDistance": "compute distances in the client",
    "Prewarm": "use LoadCollection",
    "DescribePrewarmTask": "use GetLoadState",
    "ListIndexedSegment": "use DescribeIndex",
    "DescribeSegmentIndexData": "use DescribeIndex",
    "RegisterLink": "connect to the server's address",
    "ReplicateMessage": _NO_REPLICATION,
    "UpdateReplicateConfiguration": _NO_REPLICATION,
    "GetReplicateConfiguration": _NO_REPLICATION,
    "GetReplicateInfo": _NO_REPLICATION,
    "CreateReplicateStream": _NO_REPLICATION,
    "DumpMessages": _NO_REPLICATION,
}

_INSTEAD_BY_WORD: tuple[tuple[str, str], ...] = (
    ("RowPolic", _NO_ROW_RIGHTS),
    ("UserTag", _NO_TAGS),
    ("UsersWithTag", _NO_TAGS),
    ("Snapshot", _NO_SNAPSHOTS),
    ("Namespace", _NO_NAMESPACES),
    ("Import", _NO_IMPORT),
    ("External", _NO_EXTERNAL),
    ("Manifest", _NO_EXTERNAL),
    ("FileResource", _NO_FILE_RESOURCES),
)


INSTEAD_OF_FIELD: dict[str, str] = {
    "namespace": _NO_NAMESPACES,
    "enable_namespace": _NO_NAMESPACES,
    "search_by_primary_keys": "send the keys in the field ids",
    "sub_reqs": "use HybridSearch",
    "function_chains": "send a ranker, or chains of L0 and L1 in its searches",
    "struct_array_fields": "use JSON",
    "rewrite_data": "leave it out: a restore copies no rows",
    "do_physical_backfill": "leave it out",
    "time_stamp": "leave it out: the answer is as of now",
    "timetravel": "set datacoord.retention_s",
    "segment_ids": _WHOLE_COMPACTION,
    "channel": _WHOLE_COMPACTION,
    "partition_id": _WHOLE_COMPACTION,
}
"""Replacements for request fields that this release lacks, by name."""


def unsupported_rpc(rpc: str) -> NotSupported:
    """Return the error for an RPC that no family implements."""
    instead = INSTEAD.get(rpc) or next((text for word, text in _INSTEAD_BY_WORD if word in rpc), None)
    return unsupported(rpc, instead)


def unsupported(what: str, instead: str | None = None) -> NotSupported:
    """Return the error for a requested RPC, field, parameter or type that this release lacks."""
    text = f"{what} is not supported by this release"
    return NotSupported(f"{text}: {instead}" if instead else text)


def refuse_key(caller: Caller) -> None:
    """Raise `NotSupported` for an insert that has a name: a repeated one would add its rows again."""
    if caller.idempotency_key:
        raise unsupported(
            "idempotent insert",
            f"leave the header {IDEMPOTENCY_KEY} out, or upsert rows with keys of your own",
        )
