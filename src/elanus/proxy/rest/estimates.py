"""The endpoint of estimates: the size of a collection to come. It reads no collection, and needs no right."""

from __future__ import annotations

from elanus.core.errors import InvalidParameter
from elanus.index.estimate import INDEX_ROWS_MIN, SEGMENT_BYTES, Plan, estimate, planned_index
from elanus.proxy.rest import bodies
from elanus.proxy.rest.endpoint import Endpoint, Session, endpoint
from elanus.proxy.rest.errors import reported


def estimated(session: Session, body: bodies.Estimate) -> object:
    """Estimate the memory, disk and build time of a collection before it exists

    Sizes are bytes, as `elanus estimate --json` prints them. The build time is that of one core.
    """
    plan = Plan(
        body.rows,
        body.segment_mb << 20 if body.segment_mb else SEGMENT_BYTES,
        body.other_bytes,
        body.values,
        body.replica_number,
        INDEX_ROWS_MIN,
    )
    params = {name: str(value) for name, value in body.params.items()}
    try:
        spec = planned_index(body.index_type, body.type, body.dim, body.metric_type, params)
        found = estimate(spec, plan)
    except InvalidParameter as error:
        raise reported(error) from None
    return {
        "indexType": spec.index_type,
        "metricType": str(spec.metric_type),
        "rows": found.rows,
        "segments": found.segments,
        "loadBytes": found.load_bytes,
        "indexMemoryBytes": found.index_memory_bytes,
        "nodeDiskBytes": found.node_disk_bytes,
        "insertLogBytes": found.insert_log_bytes,
        "indexFileBytes": found.index_file_bytes,
        "buildSeconds": round(found.build_s, 1),
    }


ENDPOINTS: tuple[Endpoint, ...] = (endpoint("collections/estimate", bodies.Estimate, estimated),)
