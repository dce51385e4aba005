"""The Milvus protobufs as the wire code uses them: four modules, and the service.

gRPC's own stubs of the service are not generated: `elanus.proxy.wire.service` builds its handlers from the
service descriptor.
"""

from __future__ import annotations

from elanus.proxy.wire.protos import common_pb2, milvus_pb2, rg_pb2, schema_pb2

__all__ = ["SERVICE", "common_pb2", "milvus_pb2", "rg_pb2", "schema_pb2"]

SERVICE = milvus_pb2.DESCRIPTOR.services_by_name["MilvusService"]
"""The descriptor of ``milvus.proto.milvus.MilvusService``."""
