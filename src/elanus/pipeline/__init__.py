"""The Spark jobs and the session they run on.

The jobs: flushes of ranges of the log, index builds, compactions, imports and sweeps. `jobs` runs them, and
`port` is the session as nodes see it: in this process, or in one of its own (`driver`, `on_demand`). Most
of a job is the function of one task, which needs no Spark and is tested without it.
"""
