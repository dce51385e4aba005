"""Full-text and hybrid search, narrow vectors and the on-disk index, each on a server of its own."""
