"""Segment files on an object store: the store itself, binlogs, deletes, key statistics, manifests."""
