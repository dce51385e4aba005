"""The Spark jobs: flushing ranges of the log and building indexes, and the session they run on."""
