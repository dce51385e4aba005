"""The processes of a cluster: `run` is ``elanus run``, `process` has the roles, `peers` the others."""
