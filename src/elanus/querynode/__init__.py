"""The query node: growing rows from the log, sealed segments from files, reads over both."""
