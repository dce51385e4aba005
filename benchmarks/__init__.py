"""The benchmark: Elanus, raw faiss, Milvus 2.3.5 and milvus-lite, in one run on one machine.

Figures of a vector database mean little alone: they move with the data, the machine and whatever else
the machine is doing. So nothing here is compared with a number from another day. One run takes one set
of vectors, starts every system on it in turn, measures all of them with the same steps, and reports
*ratios*: to the real Milvus (what users have today) and to faiss in process (what the hardware allows).

The parts, in the order in which a run meets them:

=================  ==================================================================================
`dataset`          vectors from an ``.npz`` or Parquet file; exact answers, with and without a filter
`environments`     Python environments of the peers under ``.bench/``, installed from PyPI
`processes`        a server as a process tree: start, CPU and memory by role, stop
`systems`          one adapter per system: how it is started, reached, and killed
`worker`           the client process; runs under each system's own interpreter
`clients`          the parent's side of a worker
`measures`         one module per question asked of every system
`runner`           the order of the measures, and what is written when one fails
`metrics`          recall, percentiles: pure functions
`limits`           one dimension after the other until something gives
`report`           results → ratios → the Markdown page
`kernels`          micro-benchmarks of the two loops on which the server's design rests
=================  ==================================================================================

Left out: distributed deployments, data larger than memory, and any index other than HNSW.

This module imports nothing, because `worker` is also run by interpreters that have only numpy and pymilvus.
"""
