"""The root coordinator: timestamps, ids, time ticks, and the catalog of collections."""
