"""The proxy role: the part that lives on the event loop."""
