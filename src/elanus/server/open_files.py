"""How many files this process and its children may have open."""

from __future__ import annotations

import resource

import structlog

from elanus.server.startup import CannotStart

_ENOUGH = 4096
_SPARK_LEAST = 512
"""Spark's Java process has 333 files open at rest; under a limit of 320 it does not start."""
_log = structlog.get_logger("server")


def connections_for(limit: int, fronts: int) -> int | None:
    """Return how many gRPC connections each of ``fronts`` proxies may have; None for any number.

    ``limit``: of open files. A connection takes one. With those of the REST API, and those that are accepted
    to be refused, a seventh is left for everything else: without it full ports would keep the process from
    opening log files and segments. At least 1.
    """
    return None if limit == resource.RLIM_INFINITY else max(1, limit * 5 // 8 // fronts)


def http_connections_for(limit: int, fronts: int) -> int | None:
    """As `connections_for`, of the REST API."""
    return None if limit == resource.RLIM_INFINITY else max(1, limit // 8 // fronts)


def open_files_limit() -> int:
    """Return the soft limit; `resource.RLIM_INFINITY` for none."""
    return resource.getrlimit(resource.RLIMIT_NOFILE)[0]


def raise_open_files_limit() -> int:
    """Raise the soft limit of open files to the hard one, and return it. Child processes inherit it.

    Connections, log files, mapped segments and index files each take one; the usual soft limit of 1024 is
    made for programs that call ``select``.
    """
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if soft != hard:
        try:
            resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
            soft = hard
        except (OSError, ValueError) as error:  # some systems refuse "unlimited"
            _log.warning("limit of open files not raised", limit=soft, error=str(error))
    if soft != resource.RLIM_INFINITY and soft < _ENOUGH:
        _log.warning(
            "few open files allowed; raise LimitNOFILE of the systemd unit, or the hard limit of ulimit -n",
            limit=soft,
            recommended=_ENOUGH,
        )
    return soft


def check_room_for_spark(limit: int) -> None:
    """Raise `CannotStart` if Spark cannot work with that many open files: rows would never be flushed."""
    if limit != resource.RLIM_INFINITY and limit < _SPARK_LEAST:
        raise CannotStart(
            f"a process may have {limit} files open, and Spark needs at least {_SPARK_LEAST}: raise "
            f"LimitNOFILE of the systemd unit, or the hard limit of ulimit -n; {_ENOUGH} are recommended"
        )
