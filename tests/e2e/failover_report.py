"""``make failover``: every strike of `strikes`, one by one under load; writes ``docs/failover.md``."""

from __future__ import annotations

import logging
import os
import platform
import shutil
import sys
import tempfile
from pathlib import Path

from cluster_load import READ, WRITE
from strikes import ROLLING, SETTLED_REQUESTS, STRIKES, TTL_S, Result, Stage, Strike

from elanus.devcluster.process import ServiceFailed

PAGE = Path(__file__).parents[2] / "docs" / "failover.md"
SEED = 1
INTRODUCTION = f"""# Failover

How long reads and writes stop when a part of a cluster is killed, paused or restarted, while clients write,
delete, read and flush through two proxies. `make failover` measures it and writes this page. The cluster
has two proxies, three query nodes that hold one replica, a data node, each coordinator with a standby,
etcd, NATS JetStream, OpenStack Swift with its S3 interface, and Spark, all on one machine; `session.ttl_s`
is {TTL_S}. After each strike all rows are compared with what was acknowledged: no row is lost or doubled,
no delete is undone, and `count(*)` is exact. Every strong read during a strike is checked too.

*Reads stopped* and *writes stopped*: the longest time after the strike in which no strong read, or no
write, succeeded at a proxy that was not struck itself. *Repeated*: reads and writes whose error says to try
again, and that were tried again, those at a struck proxy included. Kills are `kill -9`, without warning;
what was killed is started again once the others serve. A pause is SIGSTOP until the others have declared
the process dead, then SIGCONT: the same process joins again under a new id. The object store is made
unavailable by pausing its processes. A roll is an orderly stop and a start.

The share of a query node moves to the others when its session has ended; most of the time that reads are
stopped is this wait. With two replicas, a read that waits for a lost node is answered by the other one.
Writes that have to read first, deletes by expression, stop together with reads.
"""


def run(directory: Path) -> int:
    """Writes the page; how many strikes went wrong: those after the first of them are not tried."""
    stage, wrong = Stage(directory), 0
    rows: list[str] = []
    try:
        stage.start(SEED)
        for strike in (*STRIKES, *ROLLING):
            try:
                rows.append(_row(_under_load(stage, strike)))
            except (AssertionError, ServiceFailed) as error:
                rows.append(f"| {strike.name} | went wrong: {' '.join(str(error).split())[:200]} ||||")
                wrong += 1
                break
            finally:
                sys.stdout.write(rows[-1] + "\n")
                sys.stdout.flush()
                PAGE.write_text(page(rows))
    finally:
        stage.close()
    return wrong


def _under_load(stage: Stage, strike: Strike) -> Result:
    stage.load.begin()
    try:
        stage.load.wait_for(SETTLED_REQUESTS, stage.load.mark())
        result = stage.strike(strike)
    finally:
        stage.load.end()
    stage.load.check()
    return result


def page(rows: list[str]) -> str:
    table = [
        "| strike | reads stopped, s | writes stopped, s | repeated reads | repeated writes |",
        "|---|---:|---:|---:|---:|",
        *rows,
    ]
    machine = (
        f"Measured on {os.cpu_count()} cores ({platform.machine()}), all processes and the load together."
    )
    return "\n".join([INTRODUCTION, *table, "", machine]) + "\n"


def _row(result: Result) -> str:
    failed = result.span.failed
    return (
        f"| {result.strike.name} | {result.reads_s:.1f} | {result.writes_s:.1f} | {failed[READ]} |"
        f" {failed[WRITE]} |"
    )


def main() -> int:
    logging.getLogger("pymilvus").setLevel(logging.CRITICAL)
    directory = Path(tempfile.mkdtemp(prefix="elanus-failover-"))
    wrong = run(directory)
    if not wrong:
        shutil.rmtree(directory)
    return wrong


if __name__ == "__main__":
    sys.exit(main())
