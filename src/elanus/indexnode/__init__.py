"""The index node: builds one segment's index at a time, as a Spark job."""
