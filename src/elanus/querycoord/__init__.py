"""The query coordinator: what is loaded, handoff, and the version of each loaded collection."""
