"""Rules about roles, the data node with its Spark, the event loop and resource groups."""

from __future__ import annotations

from collections.abc import Iterator

from elanus.server.doctor.finding import Finding, critical, some, warning
from elanus.server.status import PipelineStatus, Status

SETTLED_S = 120.0
"""A server that started less than this ago may still be starting roles and loading collections."""
RESTARTS_MAX = 3
LOOP_LAG_MS = 500.0


def role_not_serving(status: Status) -> Iterator[Finding]:
    """A role is abnormal, or is still initializing two minutes after the start."""
    for role in status.roles:
        stuck = role.state == "Initializing" and status.uptime_s > SETTLED_S
        if role.state == "Abnormal" or stuck:
            yield critical(
                f"the role {role.role} does not serve",
                f"state {role.state}" + (f", {role.detail}" if role.detail else ""),
                f"see the errors of {role.role} in the server's log; `elanus restart-role` replaces a role "
                "of a standalone server",
            )


def pipeline_down(status: Status) -> Iterator[Finding]:
    """No data node answers: nothing is flushed, indexed, compacted or imported. A Spark that sleeps without
    jobs is well."""
    pipeline = status.pipeline
    if pipeline.state == "Disabled":
        yield warning(
            "the pipeline is switched off, so rows stay in the log and in memory",
            "pipeline.enabled is false",
            "set pipeline.enabled to true and restart the server",
        )
    elif pipeline.state == "Abnormal" and status.uptime_s > SETTLED_S:
        yield critical(
            "no data node answers, so nothing is flushed or indexed",
            f"started again {pipeline.restarts} times, its Spark does not run{_the_last(pipeline)}",
            "look for `data node ended` in the server's log: mostly Java is missing or Spark lacks memory "
            "(pipeline.driver_memory_mb); in a cluster, run `elanus run datanode`",
        )
    elif pipeline.state == "Initializing" and status.uptime_s > SETTLED_S:
        yield warning(
            "the data node does not answer although its Spark runs",
            f"Spark in process {pipeline.pid}, started again {pipeline.restarts} times{_the_last(pipeline)}",
            f"it has just been started again, or Spark hangs: end process {pipeline.pid} if this lasts, and "
            "the server starts another",
        )


def _the_last(pipeline: PipelineStatus) -> str:
    return f"; the last time: {pipeline.cause}" if pipeline.cause else ""


def pipeline_restarts(status: Status) -> Iterator[Finding]:
    """Spark ended on its own three times or more since the server started, and the data node with it. A Spark
    that is stopped for lack of jobs does not count."""
    if status.pipeline.restarts >= RESTARTS_MAX:
        yield warning(
            "Spark keeps ending, and the data node with it",
            f"started again {status.pipeline.restarts} times in {status.uptime_s / 3600:.1f} h"
            f"{_the_last(status.pipeline)}",
            "remove the cause; if it names none, look for `data node ended` in the server's log and for the "
            "kernel's out-of-memory killer, and lower imports.task_mb, or give the machine more memory",
        )


def loop_late(status: Status) -> Iterator[Finding]:
    """The event loop of the answering process was held up for half a second or longer."""
    if status.loop_lag_ms >= LOOP_LAG_MS:
        yield warning(
            "the event loop is late, so ticks, sessions and requests wait",
            f"up to {status.loop_lag_ms:.0f} ms late in the last minute",
            "see whether the machine swaps or has too few processors; sessions end at session.ttl_s",
        )


def serving_processes(status: Status) -> Iterator[Finding]:
    """A further serving process does not run two minutes after the start, has been started again three times
    or more, or its event loop was held up for half a second or longer."""
    down = [p.number for p in status.serving if p.pid is None and status.uptime_s > SETTLED_S]
    if down:
        yield warning(
            "serving processes do not run, so the others answer their share of the reads",
            some([f"process {number}" for number in down]),
            "look for `serving process` in the server's log: another address or lack of memory is its usual "
            "cause",
        )
    restarted = [p for p in status.serving if p.restarts >= RESTARTS_MAX]
    if restarted:
        yield warning(
            "serving processes keep ending: their clients connect again each time",
            some([f"process {p.number} started again {p.restarts} times" for p in restarted]),
            "look for `serving process` in the server's log and for the kernel's out-of-memory killer; lower "
            "proxy.processes, as each process has a copy of growing rows",
        )
    late = [p for p in status.serving if p.loop_lag_ms >= LOOP_LAG_MS]
    if late:
        yield warning(
            "the event loop of serving processes is late, so reads there wait or are passed on",
            some([f"process {p.number} up to {p.loop_lag_ms:.0f} ms" for p in late]),
            "see whether the machine swaps or has too few processors; lower proxy.processes",
        )


def nodes_missing(status: Status) -> Iterator[Finding]:
    """A resource group has fewer query nodes than its capacity, or none for the replicas that it holds."""
    for group in status.resource_groups:
        if group.replicas and not group.nodes:
            yield critical(
                f"the resource group {group.name} has replicas and no query node",
                f"{group.replicas} replicas, no live node",
                "start query nodes, or transfer nodes to the group",
            )
        elif group.missing_nodes:
            yield warning(
                f"the resource group {group.name} lacks query nodes",
                f"{len(group.nodes)} live, {group.missing_nodes} missing",
                "start query nodes, transfer nodes to the group, or lower its capacity",
            )


def silent_coordinators(status: Status) -> list[str]:
    """Return the coordinators that did not answer: what they know is missing from the status."""
    names = ("rootcoord", "datacoord", "indexcoord", "querycoord")
    return [r.role for r in status.roles if r.state == "Abnormal" and r.role.startswith(names)]


def status_incomplete(status: Status) -> Iterator[Finding]:
    """A coordinator did not answer, so other rules may have found nothing only for lack of figures."""
    if silent := silent_coordinators(status):
        yield warning(
            "this diagnosis is incomplete",
            f"no answer from {some(silent)}",
            "run `elanus doctor` again when these coordinators serve",
        )


RULES = (
    role_not_serving,
    status_incomplete,
    pipeline_down,
    pipeline_restarts,
    loop_late,
    serving_processes,
    nodes_missing,
)
