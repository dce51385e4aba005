"""The Milvus gRPC front: the only package that knows Milvus protobufs.

A request passes through four thin layers::

    service     gRPC: finds the operation and the caller, passes both to `elanus.proxy.calls`
    operations  the RPCs as operations: understood fields, names of objects, errors as statuses
    families    databases, collections, partitions, indexes, writes, reads, admin: one method per RPC
    codecs      schemas, rows, search_request, query_request, results: protobuf ⇄ domain types

The calls of Elanus' own clients on the same port are operations too: `connector` is their family,
`interfaces` their form.

The messages are generated from Milvus's own files: `elanus.proxy.wire.protos`. Behind the layers are the
verbs (`elanus.proxy.api`), which do not know protobuf. The wire behaves as Milvus 2.3.5 does where client
generations expect different things. It leaves out every RPC that `elanus.proxy.wire.unsupported` names: those
return a status that says so. The privilege that each RPC requires is in `permissions`.
"""
