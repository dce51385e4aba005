"""The Milvus gRPC front: the only room that knows Milvus protobufs.

A request passes through three thin layers::

    service   finds the method of an RPC, turns every error into a status
    families  databases, collections, partitions, indexes, writes, reads, admin: one method an RPC
    codecs    schemas, rows, search_request, query_request, results: protobuf ⇄ domain types

Behind them stands `elanus.proxy.api.Front`, which knows no protobuf. The wire behaves as Milvus 2.3.5
does where client generations expect different things. It leaves out authentication, TLS and every
RPC that `elanus.proxy.wire.unsupported` names: those answer with a status that says so.
"""
