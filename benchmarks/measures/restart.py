"""From a crash to right answers."""

from __future__ import annotations

from benchmarks.bench import MAIN, Bench, Values
from benchmarks.measures.search import ef_95

QUERIES = 20
LIMIT_S = 180.0


def measure_restart(bench: Bench) -> Values:
    """Kill the whole server with SIGKILL, start it, and search until nine in ten exact neighbors come back.

    The time runs from the start of the new process. A collection that the server does not load by itself is
    loaded by the client, within that time.
    """
    server = bench.the_server()
    server.crash()
    with bench.more_clients(1, connected=False) as [client]:
        client.call("ping")  # its imports are done before the clock starts
        server.start()
        found = client.call(
            "until_searchable",
            collection=MAIN,
            queries=QUERIES,
            ef=ef_95(bench),
            top_k=bench.settings.top_k,
            truth=bench.truth(QUERIES),
            timeout_s=LIMIT_S,
        )
    return {"restart.searchable_s": found["seconds"], "restart.client_loaded": float(found["loaded"])}
