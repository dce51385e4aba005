"""The log of a cluster, on NATS JetStream.

A pchannel is a stream in files, a position is a sequence number of it: numbers grow, are given once, and
a purge does not set them back. Many processes append and read at a time. What each part does:

- `connection`: one connection to the servers, and their answers as errors of ours
- `messages`: an entry as messages of a stream and back; large ones are split
- `writer`: appends of one process to one pchannel, in order, each exactly once
- `reader`: following a stream
- `log`: all of it behind `elanus.log.port.Log`

**What the server must be.** JetStream enabled, release 2.12 or newer: an append that is more than one
message goes as an atomic batch, so that it stands together and is never half there. ``sync_interval:
always`` in its configuration, unless streams have replicas on machines that do not fail together: by
itself a server brings messages to stable storage every two minutes, and an acknowledged write of the
last two would not survive the machine.
"""
