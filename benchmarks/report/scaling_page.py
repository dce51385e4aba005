"""The scaling page: reads over several nodes and on a standalone server, balance, and a cluster at rest."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from benchmarks.scaling.figures import Balance, Idle, Reads, Scaling

OVERHEAD_MAX_MS = 3.0
UNEVEN_MAX = 0.1

HEAD = """\
# Scaling out

*Made from `scaling.json` by `python -m benchmarks render scaling > docs/scaling.md`;
`make scaling` measures again.*

One machine, so more nodes bring no more processors. The page shows that each node holds its share,
and the cost of the network.

## Reads over 1, 2 and 4 query nodes
"""

METHOD = """\
Elanus {version} on {machine}. A collection of {rows:,} rows of dimension {dim} in two shards, in sealed
segments of some 1,400 rows that are searched exactly, on a standalone server and on a cluster (coordinators,
proxy, data node and each query node a process of its own; etcd, NATS, objects in a directory), both running
at once. Single searches for 10 neighbors take turns between the two; medians. *Overhead* is the difference:
timestamps and ticks by call, the query channel there and back, the merge in the proxy.
"""
COSTS = """\
Processor time of one Bounded search, in ms, by process. All nodes
share {processors} processors here, which they would not on machines of their own. The client and the proxy
work one after another, the others at most {processors} at a time: so searches over {query_nodes} nodes that
follow each other take about **{least_ms:.1f} ms** each at least, with any network.
"""
AT_REST = """\
All collections loaded and empty; shares of one processor. Writes to etcd are the oracle's bound, and the
checkpoint of each idle vchannel every 30 s, with a key that shows whether it was applied when its
answer is lost: they grow with the number of vchannels, not with the rate of ticks. A checkpoint alone wakes
nobody, so nothing here grows faster than the number of collections.
"""
_READS_HEAD = (
    "query nodes",
    "rows on each",
    "Bounded: cluster, standalone",
    "overhead",
    "Strong: cluster, standalone",
    "overhead",
)


def render_scaling(found: Scaling) -> str:
    return "\n".join(
        [
            HEAD,
            *_reads(found.reads),
            "",
            _method(found),
            *([found.remark, ""] if found.remark else []),
            *_costs(found),
            *_balance(found.balance),
            *_idle(found.idle),
        ]
    )


def _reads(reads: Sequence[Reads]) -> Iterator[str]:
    yield f"| {' | '.join(_READS_HEAD)} |"
    yield "|---:|---|---:|---:|---:|---:|"
    for r in reads:
        over, strong_over = r.bounded_ms - r.bounded_alone_ms, r.strong_ms - r.strong_alone_ms
        rows = ", ".join(f"{n:,}" for n in r.rows_per_node)
        verdict = "met" if over <= OVERHEAD_MAX_MS else "not met"
        yield (
            f"| {r.query_nodes} | {rows} | {r.bounded_ms:.1f} ms, {r.bounded_alone_ms:.1f} ms | "
            f"**{over:.1f} ms** (target {OVERHEAD_MAX_MS:g}: {verdict}) | "
            f"{r.strong_ms:.1f} ms, {r.strong_alone_ms:.1f} ms | {strong_over:.1f} ms |"
        )


def _method(found: Scaling) -> str:
    return METHOD.format(
        version=found.version, machine=found.machine, rows=found.reads[0].rows, dim=found.dim
    )


def _costs(found: Scaling) -> Iterator[str]:
    processors, most = int(found.machine.split()[0]), found.costs[-1]
    serial_ms = most.cpu_ms["client"] + most.cpu_ms["proxy"]
    least_ms = serial_ms + (sum(most.cpu_ms.values()) - serial_ms) / processors
    yield "### What a read costs\n"
    yield COSTS.format(processors=processors, query_nodes=most.query_nodes, least_ms=least_ms)
    names = ("query nodes", "client", "proxy", "all query nodes", "NATS", "else", "sum", "standalone server")
    yield f"| {' | '.join(names)} |"
    yield f"|{'---:|' * len(names)}"
    for cost in found.costs:
        of = cost.cpu_ms
        nodes = sum(ms for name, ms in of.items() if name.startswith("query node"))
        total = sum(of.values())
        named = [of["client"], of["proxy"], nodes, of["NATS"]]
        shown = " | ".join(f"{ms:.1f}" for ms in (*named, total - sum(named), total, cost.alone_ms))
        yield f"| {cost.query_nodes} | {shown} |"
    yield ""


def _balance(balance: Balance) -> Iterator[str]:
    yield "## Balance\n"
    for what, counts in (
        ("loaded on four nodes", balance.loaded),
        (f"loaded on three, {balance.joined_s:g} s after a fourth joined", balance.joined),
    ):
        even = sum(counts) / len(counts)
        uneven = max(abs(count - even) for count in counts) / even
        verdict = "met" if uneven <= UNEVEN_MAX else "not met"
        shown = ", ".join(map(str, counts))
        yield (
            f"- {balance.segments} segments, {what}: {shown}; at most **{uneven:.0%}** from even "
            f"(target {UNEVEN_MAX:.0%}: {verdict})"
        )
    yield ""


def _idle(idle: Sequence[Idle]) -> Iterator[str]:
    yield "## A cluster at rest\n"
    names = list(idle[0].cpu)
    yield f"| collections × shards | tick interval | ticks/s | etcd writes/s | {' | '.join(names)} |"
    yield f"|---:|---:|---:|---:|{'---:|' * len(names)}"
    for i in idle:
        shares = " | ".join(f"{i.cpu[name]:.1%}" for name in names)
        yield (
            f"| {i.collections} × {i.shards} | {i.tick_interval_ms} ms | {i.ticks_per_s:.0f} | "
            f"{i.etcd_writes_per_s:.1f} | {shares} |"
        )
    yield ""
    yield AT_REST
