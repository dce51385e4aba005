"""The log of a cluster, on NATS JetStream.

A pchannel is a stream in files, a position is a sequence number of it: numbers grow, are given once, and
a purge does not set them back. Many processes append and read at a time. What each part does:

- `source`: where it is, as a URL
- `connection`: one connection to the servers, and their answers as errors of ours
- `messages`: an entry as messages of a stream and back; large ones are split
- `writer`: appends of one process to one pchannel, in order, each exactly once
- `follower`: following a stream, whatever is in it (query channels are followed so too)
- `reader`: the entries of a stream
- `log`: all of it behind `elanus.log.port.Log`

**What the server must be.** JetStream enabled, release 2.12 or newer: an append that is more than one
message goes as an atomic batch, so that it stands together, and is refused as a whole. (A server that is
killed while it stores a batch may keep its beginning; writer and readers see through that.)
``sync_interval: always`` in its configuration, unless streams have replicas on machines that do not fail
together: by itself a server brings messages to stable storage every two minutes, and an acknowledged write
of the last two would not survive the machine.
"""
