"""The root coordinator: timestamps, ids, time ticks, the catalog, definitions, users and rights."""
