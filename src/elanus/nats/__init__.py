"""The NATS code that the log and the query channels share: a connection, a URL, following a stream."""
