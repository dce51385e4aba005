"""How many files this process and its children may have open."""

from __future__ import annotations

import resource

import structlog

_ENOUGH = 4096
_log = structlog.get_logger("server")


def connections_for(limit: int, fronts: int) -> int | None:
    """How many client connections each of ``fronts`` ports may have; None for any number.

    ``limit``: of open files. A connection takes one. A quarter is left for everything else: without it a full
    port would keep the process from opening log files and segments. At least 1.
    """
    return None if limit == resource.RLIM_INFINITY else max(1, limit * 3 // 4 // fronts)


def open_files_limit() -> int:
    """The soft limit; `resource.RLIM_INFINITY` for none."""
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
