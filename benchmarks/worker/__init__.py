"""The client process: one pymilvus client (or one faiss index), which gets its commands as JSON lines.

A run needs clients of two pymilvus generations, some of them inside a network namespace of their own, and
several at a time without sharing an interpreter lock. So each client is a process, started with the
interpreter of the system that it talks to: ``python -m benchmarks.worker …``. It reads one JSON object per
line on standard input, ``{"call": "search_for", "arguments": {…}}``, and writes one per call on standard
output, ``{"result": …}`` or ``{"error": "…"}``. It ends when its input ends.

Everything here runs on numpy and either pymilvus (2.3.6 or 3.0.2) or faiss, and imports nothing else of the
benchmark. Latencies are taken here, around the client library's call, as an application would see them.
"""
