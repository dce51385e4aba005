"""The log of a cluster, on NATS JetStream.

A pchannel is a stream with file storage, and a position is a sequence number of the stream: numbers grow, are
used once, and a purge does not reset them. A new stream begins at the microseconds since 1970, so numbers are
not used again when a stream is lost: a reader of a lost message gets `TrimmedLog`. A stream that is put back
to an older copy would use numbers again. So nothing is appended to one that ends before a position that the
process or the metadata knows, and a reader that begins beyond its end gets `RewoundLog`. Many processes
append and read at the same time. The parts:

- `source`: the log's location, as a URL
- `connection`: one connection to the servers, and their answers as this project's errors
- `messages`: conversion between an entry and messages of a stream; large entries are split
- `writer`: appends of one process to one pchannel, in order, each exactly once
- `follower`: following a stream of any content (also used for query channels)
- `reader`: the entries of a stream
- `log`: all of it behind `elanus.log.port.Log`

**Server requirements.** JetStream enabled, release 2.12 or newer: an append of more than one message is
published as an atomic batch, so that its messages are contiguous, and it is refused as a whole. (A server
that is killed while it stores a batch may keep the beginning of the batch; writer and readers handle that.)
``sync_interval: always`` in its configuration, unless streams have replicas on machines that do not fail
together: by default a server brings messages to stable storage every two minutes, and writes acknowledged in
the last two minutes would not survive a crash of the machine.
"""
