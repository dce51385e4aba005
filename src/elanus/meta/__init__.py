"""The metadata: small records under keys, with revisions, leases and watches.

`port` is the interface; its adapters are `sqlite` (a standalone), `etcd` (a cluster; `backends` selects it by
a URL) and `memory` (tests and the simulator). Above every adapter are `typed` records, `session` and
`election` with their leases (`keeper` renews them), and `view` and `directory`, which are kept up to date.
"""
