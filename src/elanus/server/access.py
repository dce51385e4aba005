"""Who may use a port for clients: the guard and the sign-in of a proxy, as the settings say."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from elanus.core.access import AccessPolicy, User
from elanus.proxy.calls import AllowAll, Guard
from elanus.proxy.guard import AccessGuard, SeesAll, Visibility
from elanus.proxy.passwords import hash_password
from elanus.proxy.role.proxy import Proxy
from elanus.proxy.sign_in import SignIn
from elanus.server.settings import ProxySettings
from elanus.server.startup import CannotStart


@dataclass(frozen=True, slots=True)
class PortAccess:
    """What every front of a proxy (gRPC, HTTP) asks before it answers."""

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


def port_access(settings: ProxySettings, current: Callable[[], Proxy]) -> PortAccess:
    """``current`` returns the running instance of the proxy that answers."""
    if not settings.authorization_enabled:
        return PortAccess(AllowAll(), SignIn(None), SeesAll())

    def policy() -> AccessPolicy:
        return current().policies.current()

    def real_name(database: str, name: str) -> str:
        return current().collection(database, name).view.name

    def rehash(user: User, password: str) -> None:
        proxy, hashed = current(), hash_password(password)
        root = proxy.coordinators.root
        proxy.call(root.set_password(user.name, hashed, user.generation))

    guard = AccessGuard(policy, real_name)
    return PortAccess(guard, SignIn(policy, settings.initial_root_password, rehash=rehash), guard)
