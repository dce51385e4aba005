"""Rules about what the answering process has: memory, disk, open files, certificates, users, a store."""

from __future__ import annotations

from collections.abc import Iterator

from elanus.server.doctor.finding import Finding, critical, mb, warning
from elanus.server.status import Status

MEMORY_SHARE = 0.9
FILES_SHARE = 0.7
"""Clients may take more than three quarters of the open files."""
DISK_RESERVES = 4
"""Less free disk than this many reserves is a warning."""
DISK_FULL_BYTES = 1 << 20
"""With less than this nothing is written, however small the reserve."""
EXPIRES_DAYS = 30.0
STORE_ASKED_S = 600.0
"""A request that failed longer ago may succeed by now: nobody has asked since."""


def growing_near_limit(status: Status) -> Iterator[Finding]:
    """Growing data is above the soft limit, where writes are slowed, or near the hard one, where they end."""
    r = status.resources
    if r is None or r.growing_bytes < r.growing_soft_bytes or not r.growing_soft_bytes:
        return
    evidence = (
        f"{mb(r.growing_bytes)} growing, slowed from {mb(r.growing_soft_bytes)}, "
        f"refused from {mb(r.growing_hard_bytes)}"
    )
    remedy = (
        "see that flush jobs succeed (`elanus jobs`); raise backpressure.growing_soft_mb and growing_hard_mb "
        "if memory allows"
    )
    if r.growing_bytes >= MEMORY_SHARE * r.growing_hard_bytes:
        yield critical("writes are refused or soon will be", evidence, remedy)
    else:
        yield warning("writes are slowed by back-pressure", evidence, remedy)


def memory_near_limit(status: Status) -> Iterator[Finding]:
    """The answering process uses nine tenths of the memory that its machine or container has."""
    r = status.resources
    if r and r.memory_limit_bytes and r.memory_bytes > MEMORY_SHARE * r.memory_limit_bytes:
        yield critical(
            "the process has little memory left",
            f"{mb(r.memory_bytes)} of {mb(r.memory_limit_bytes)}",
            "release collections, choose an index that takes less (`elanus estimate`), set mmap.enabled, and "
            "set querynode.memory_mb, so that loads which do not fit are refused",
        )


def disk_nearly_full(status: Status) -> Iterator[Finding]:
    """The disk's free space is near backpressure.disk_reserve_mb, below which writes are refused."""
    r = status.resources
    if r is None or r.disk_free_bytes is None:
        return
    refused_bytes = max(r.disk_reserve_bytes, DISK_FULL_BYTES)
    evidence = f"{mb(r.disk_free_bytes)} free, writes are refused below {mb(refused_bytes)}"
    remedy = "free or add space; `elanus gc --dry-run` shows what dropped data takes"
    if r.disk_free_bytes < refused_bytes:
        yield critical("the disk is full: writes are refused", evidence, remedy)
    elif r.disk_free_bytes < DISK_RESERVES * r.disk_reserve_bytes:
        yield warning("the disk is nearly full", evidence, remedy)


def open_files_near_limit(status: Status) -> Iterator[Finding]:
    """The process has most of its open files in use: connections, log files and mapped segments."""
    r = status.resources
    if r and r.open_files_limit and r.open_files > FILES_SHARE * r.open_files_limit:
        yield warning(
            "few open files are left",
            f"{r.open_files} of {r.open_files_limit}",
            "raise LimitNOFILE of the systemd unit or `ulimit -n`, or lower proxy.connections_max",
        )


def certificate_expiring(status: Status) -> Iterator[Finding]:
    """A certificate of the settings has expired, or does so within thirty days."""
    for one in status.resources.certificates if status.resources else ():
        if one.days_left <= EXPIRES_DAYS:
            report = critical if one.days_left <= 0 else warning
            verb = "has expired" if one.days_left <= 0 else f"expires in {one.days_left:.0f} days"
            yield report(
                f"a certificate of {one.setting} {verb}",
                f"{one.path}, until {one.expires}",
                "renew the file: new connections of clients use it at once"
                if one.setting.startswith("proxy.")
                else "renew the file and restart the process",
                one.expires if one.days_left <= 0 else "",
            )


def default_password(status: Status) -> Iterator[Finding]:
    """The user root still has the password that every new server has."""
    if status.resources and status.resources.default_root_password:
        yield warning(
            "root has the default password",
            "proxy.authorization_enabled is true, and root's password was never changed",
            "sign in as root and call update_password, or set proxy.root_password before the first start",
        )


def open_to_all(status: Status) -> Iterator[Finding]:
    """The server listens on other addresses than loopback, and asks nobody to sign in."""
    if status.resources and status.resources.open_to_all:
        yield warning(
            "everybody who reaches the port may read and change all data",
            "proxy.open_to_all is true, proxy.authorization_enabled is false, and proxy.host is not loopback",
            "set proxy.authorization_enabled to true, or proxy.host to 127.0.0.1",
        )


def log_not_synced(status: Status) -> Iterator[Finding]:
    """Acknowledged writes are not on stable storage: they do not survive the end of the machine."""
    if status.resources and not status.resources.log_synced:
        yield warning(
            "acknowledged writes may be lost when the machine fails",
            "log.fsync is false",
            "set log.fsync to true unless the data can be written again",
        )


def object_store_failing(status: Status) -> Iterator[Finding]:
    """The object store answered none of the answering process's last requests, or refused it."""
    failures = status.resources.store_failures if status.resources else None
    if failures is not None and failures.last_s <= STORE_ASKED_S:
        yield critical(
            "the object store fails: nothing is flushed, indexed, loaded or imported",
            f"{failures.count} requests failed since the last that was answered, the first "
            f"{failures.first_s:.0f} s ago, the last {failures.last_s:.0f} s ago: {failures.text}",
            "see that the store of storage.url runs, is reached from here and has room, and that the "
            "credentials are valid; what waits for it is tried again by itself",
        )


RULES = (
    growing_near_limit,
    memory_near_limit,
    disk_nearly_full,
    open_files_near_limit,
    certificate_expiring,
    default_password,
    open_to_all,
    log_not_synced,
    object_store_failing,
)
