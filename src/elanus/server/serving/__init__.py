"""Serving processes: further processes of a standalone server that answer searches and queries.

Python runs one thread at a time in a process, so small searches of one process end near one processor. A
serving process is a proxy and a query node without the rest: it listens on the main process's port (the
kernel shares out the connections), answers reads from its own copy of what is loaded, and passes everything
else on to the main process (`elanus.proxy.wire.passing`), which has the coordinators, the metadata and the
only writer of the log.

- `process`: the process itself. It reaches the coordinators, and they reach it, through local sockets.
- `pool`: the main process's side: starts the others, restarts one that ends, and ends one that does not
  answer. A change that must be in force in every process when it returns (a revoke, a dropped collection, a
  release) therefore waits for a serving process's answer, or for its end.
- `reads`: the read side of its query node, which answers only collections with a grant
  (`elanus.querycoord.mirrors`).
- `members`: the running processes, as the coordinators see them.

Its node reads the log's files and the objects of the same directory. Index files are mapped in every process,
so they are in memory once, in the page cache; scalar columns and growing rows are in each process. Log
entries are decoded without copies (`elanus.log.codec`), so following costs by the pack and not by the row,
until growing rows get an interim index: that is made in each process.
"""
