"""The proxy: the Milvus front, its task queues and caches, and the path of writes and reads through it."""
