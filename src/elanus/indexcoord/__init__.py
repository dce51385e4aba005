"""The index coordinator: which segment needs which index, and the builds in progress."""
