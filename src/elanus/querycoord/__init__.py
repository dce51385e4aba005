"""The query coordinator: loaded collections, handoff, and the version of each loaded collection."""
