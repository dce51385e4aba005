"""The data coordinator: segments from their first allocation to their flush, and all commits in between."""
