"""Serving gRPC calls on a loop of our own over grpcio's completion queue.

grpcio's server passes every call through a pool: a thread is woken to receive the message, waits for the
thread that reads the completion queue, runs the handler, and answers. For a call of a fraction of a
millisecond that is most of the work. This package uses the same library below grpcio (HTTP/2, TLS, message
limits, deadlines, keepalive are its own), but answers short calls in the thread that reads the queue.

One thread at a time reads the queue: it *leads* (`leading`). A call that may take long goes to the pool of
workers, as all calls do in grpcio's server. Which calls those are is decided by what calls of their kind took
before (`placement`). An estimate may be wrong, so leading can be handed on while a handler runs: at once when
the handler says that it is about to wait (`waiting`), and after some milliseconds by a thread that watches
the leader. No handler can hold up the other calls for longer, whatever it does.

Handlers are those of grpcio's server and cannot distinguish the two (`calls`). Streams are served by
grpcio's own code on the same queue, and so are calls of unknown methods. The loop uses names of grpcio that
are not public (`queue` has all of them), so grpcio's release is pinned, other releases are refused, and the
loop is tried out before it is used (`selftest`). If that fails, `server` takes grpcio's server instead.
"""
