"""The Milvus protobufs: Milvus's own .proto files, and the Python modules generated from them.

``make protos`` generates the modules ``*_pb2`` and their type stubs. They are used like
the modules that ``protoc`` generates, but their descriptors are in a pool of their own (`pool`).
"""
