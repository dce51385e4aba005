"""The proxy: what clients talk to. From the client inward:

* ``wire`` and ``rest`` are the fronts: gRPC and HTTP, decoding and encoding.
* ``calls`` is the one path of every call; ``access`` decides who may call, ``read_watch`` explains reads.
* ``api`` declares the verbs in domain terms; ``verbs`` carries them out, in the client's thread.
* ``role`` is the part on the event loop: queues, caches, the time ticker, the path of reads.
* ``fanout`` spreads a read over query nodes; ``embedding`` has providers make vectors of texts.
"""
