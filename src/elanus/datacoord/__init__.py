"""The data coordinator: segments from their first quota to their flush, and the commits in between."""
