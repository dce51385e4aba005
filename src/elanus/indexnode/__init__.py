"""The index node: each of its orders is the index of one segment, built by a Spark job."""
