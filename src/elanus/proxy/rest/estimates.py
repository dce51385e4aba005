"""The endpoint of estimates: the size of a collection to come, or of one that is there with another index.

Figures alone need no right. For a collection, the caller needs the rights to describe it and to see its
statistics.
"""

from __future__ import annotations

from msgspec import structs

from elanus.core.errors import InvalidParameter
from elanus.core.types import KINDS, DataType
from elanus.index.estimate import INDEX_ROWS_MIN, SEGMENT_BYTES, Plan, estimate, planned_index
from elanus.proxy.rest import bodies
from elanus.proxy.rest.endpoint import Endpoint, Session, endpoint
from elanus.proxy.rest.errors import reported

_TYPE = "FloatVector"


def estimated(session: Session, body: bodies.Estimate) -> object:
    """Estimate the memory, disk and build time of a collection before it exists, or before another index

    Sizes are bytes, as `elanus estimate --json` prints them. The build time is that of one core.
    """
    if body.collection_name:
        body = _of_collection(session, body)
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
        spec = planned_index(body.index_type, body.type or _TYPE, body.dim, body.metric_type, params)
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


def _of_collection(session: Session, body: bodies.Estimate) -> bodies.Estimate:
    """Fill in what the collection says. Raises `RestError`."""
    schema = session.rpc("DescribeCollection", body).schema
    stats = session.rpc("GetCollectionStatistics", body).stats
    fields = [f for f in schema.fields if KINDS[DataType(f.data_type)].vector is not None]
    if body.field_name:
        fields = [f for f in fields if f.name == body.field_name]
    if len(fields) != 1:
        wrong = InvalidParameter(
            f"{body.collection_name} has {len(fields)} vector fields"
            + (f" of the name {body.field_name}" if body.field_name else "")
            + ": name one of its vector fields as fieldName"
        )
        raise reported(wrong)
    (field,) = fields
    dim = next((int(pair.value) for pair in field.type_params if pair.key == "dim"), 0)
    rows = body.rows or next((int(pair.value) for pair in stats if pair.key == "row_count"), 0)
    if not rows:
        absent = f"{body.collection_name} has no rows, by its statistics: say as rows how many it will have"
        raise reported(InvalidParameter(absent))
    return structs.replace(
        body, rows=rows, dim=body.dim or dim, type=body.type or DataType(field.data_type).name
    )


ENDPOINTS: tuple[Endpoint, ...] = (
    endpoint(
        "collections/estimate",
        bodies.Estimate,
        estimated,
        "DescribeCollection",
        "GetCollectionStatistics",
    ),
)
