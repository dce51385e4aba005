"""Access to the ports for clients, as the settings say: guard, sign-in and audit log of the proxies."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable
from contextlib import AsyncExitStack
from dataclasses import dataclass
from pathlib import Path

from elanus.core.access import AccessPolicy, User
from elanus.metrics import Metrics
from elanus.proxy.access.audit import AuditLog
from elanus.proxy.access.guard import AccessGuard, AllowAll, Guard, SeesAll, Visibility
from elanus.proxy.access.passwords import hash_password
from elanus.proxy.access.sign_in import SignIn
from elanus.proxy.role.proxy import Proxy
from elanus.server.settings import ProxySettings, Settings
from elanus.server.startup import CannotStart


@dataclass(frozen=True, slots=True)
class PortAccess:
    """The checks that every front of a proxy (gRPC, HTTP) makes before it answers."""

    guard: Guard
    sign_in: SignIn
    visible: Visibility


def check_openness(settings: ProxySettings) -> None:
    """Raises `CannotStart` for a port that others reach without signing in, unless that was asked for."""
    if settings.is_on_loopback or settings.authorization_enabled or settings.open_to_all:
        return
    raise CannotStart(
        f"proxy.host is {settings.host}, and clients need not sign in: everybody who reaches it could read "
        "and delete all data. Set proxy.authorization_enabled=true and proxy.root_password "
        "(docs/security.md), or proxy.open_to_all=true if the network keeps others away"
    )


def open_audit(
    stack: AsyncExitStack, settings: Settings, root: Path, metrics: Metrics, name: str = "audit.log"
) -> AuditLog | None:
    """Open the audit log of a process, closed with the stack; None if there is none. Raises `CannotStart`.

    ``root``: the process's data directory. ``name``: no other process writes a file of this name there.
    """
    audit = settings.audit
    if not audit.enabled:
        return None
    file = (Path(audit.directory) if audit.directory else root / "audit") / name
    try:
        opened = AuditLog(
            file,
            time.time,
            metrics.audit_records_lost.inc,
            data_share=audit.data_share,
            file_max_bytes=audit.file_max_mb * 1024 * 1024,
            files_max=audit.files_max,
        )
    except OSError as error:
        raise CannotStart(f"audit.directory: {file} cannot be written: {error.strerror}") from error
    stack.push_async_callback(asyncio.to_thread, opened.close)
    return opened


def port_access(settings: ProxySettings, current: Callable[[], Proxy]) -> PortAccess:
    """``current`` returns the running instance of the proxy that answers."""
    tries = settings.wrong_passwords_per_minute
    if not settings.authorization_enabled:
        sign_in = SignIn(None, settings.initial_root_password, tries_per_minute=tries)
        return PortAccess(AllowAll(), sign_in, SeesAll())

    def policy() -> AccessPolicy:
        return current().policies.current()

    def real_name(database: str, name: str) -> str:
        return current().collection(database, name).view.name

    def rehash(user: User, password: str) -> None:
        proxy, hashed = current(), hash_password(password)
        root = proxy.coordinators.root
        proxy.call(root.set_password(user.name, hashed, user.generation))

    guard = AccessGuard(policy, real_name)
    sign_in = SignIn(policy, settings.initial_root_password, rehash=rehash, tries_per_minute=tries)
    return PortAccess(guard, sign_in, guard)
