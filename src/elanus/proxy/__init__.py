"""The proxy: the Milvus front, its task queues, its caches, and the way of a write and a read through it."""
