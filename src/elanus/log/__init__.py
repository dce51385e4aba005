"""The log: one stream of entries per pchannel, to which all writes go before they are acknowledged.

`port` is the interface, and `backends` selects an adapter by the scheme of a URL: `files` (the embedded log,
which `commit` and `writer` write, and `channel`, `reading` and `follower` read), `jetstream`, or `memory`.
`codec` converts messages to entries. `dispatcher` and `tick_line` are above every adapter: one reader of a
pchannel for all vchannels that a process follows.
"""
