"""The page docs/access-matrix.md, from the registries of operations."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Mapping

from elanus.api.backups import BackupApi
from elanus.api.connector import ConnectorApi
from elanus.api.keys import KeysApi
from elanus.console.app import REPORTS
from elanus.console.status import OPERATIONS
from elanus.console.views import VIEWS
from elanus.proxy.access.permission import Permission, permission_of
from elanus.proxy.rest.operations import RPC_OF
from elanus.proxy.rest.table import TABLE
from elanus.proxy.wire.backups import BackupService
from elanus.proxy.wire.connector import Connector
from elanus.proxy.wire.keys import Keys
from elanus.proxy.wire.permissions import about_fields, service_permissions
from elanus.proxy.wire.stubs import SERVICE
from elanus.rpc.methods import methods_of

_INTRODUCTION = """\
# The access matrix

<!-- Written by `make docs` from the registries of operations: edit the code, not this page. -->

Every way into a server with users, and the right that it needs. `tests/pure/wire/test_access_matrix.py`
enters each of them as its clients do, as each of these callers:

| caller | outcome |
|---|---|
| not signed in | refused, by every operation |
| without the grant | refused, however many others the user has |
| with the grant | answered |
| with the grant in another database | refused; the request's database counts, then the connection's |
| with the grant on another collection | refused |
| with the grant on the collection, by an alias | answered; a grant on the alias's name gives nothing |
| with the grant, by an API key limited to another role or another database | refused |

An endpoint of the REST API, `/v2/vectordb/...`, is the RPCs that it calls: it needs their rights. The console
calls the same endpoints below `/ui/api/call/`, as the user of its session. Rights are explained in
[security.md](security.md).
"""
_OWN = ((ConnectorApi, Connector), (BackupApi, BackupService), (KeysApi, Keys))


def markdown() -> str:
    """Return the page."""
    return "".join(_page())


def _page() -> Iterator[str]:
    yield _INTRODUCTION
    yield "\n## RPCs and REST endpoints\n\n| RPC | privilege | on | REST endpoints |\n|---|---|---|---|\n"
    endpoints = _endpoints()
    permissions = service_permissions(SERVICE)
    for method in SERVICE.methods:
        permission = permissions[method.name]
        fields = about_fields(method.input_type, permission)
        yield _row(method.name, permission, fields, ", ".join(f"`{path}`" for path in endpoints[method.name]))
    without = [f"`{path}`" for path, one in TABLE.items() if not one.operations]
    yield f"\nThese endpoints call no role: they refuse, or compute from the request: {', '.join(without)}.\n"
    yield "\n## Views of the console\n\n| path | RPCs |\n|---|---|\n"
    for path, view in VIEWS.items():
        yield f"| `/ui/api/view/{path}` | {', '.join(f'`{name}`' for name in view.operations)} |\n"
    permissions_of_reports = {one.name: one.permission for one in OPERATIONS}
    for path, name in REPORTS.items():
        privilege = _short(permissions_of_reports[name].privilege)
        yield f"| `/ui/api/{path}` | `{name}`: `{privilege}` on everything in all databases |\n"
    yield "\n## Calls of Spark and of `elanus`\n\n"
    yield "| call | privilege | on | REST endpoint |\n|---|---|---|---|\n"
    for api, target in _OWN:
        for name in methods_of(api):
            permission = permission_of(getattr(target, name)) or _undeclared(name)
            fields = (permission.object_field,) if permission.object_field else ()
            call = f"{api.__name__}.{name}"
            yield _row(call, permission, fields, ", ".join(f"`{path}`" for path in endpoints[call]))


def _endpoints() -> Mapping[str, list[str]]:
    """Return the paths of the endpoints that call each RPC."""
    found: dict[str, list[str]] = defaultdict(list)
    for path, endpoint in TABLE.items():
        for name in endpoint.operations:
            found[RPC_OF.get(name, name)].append(path)
    return found


def _row(name: str, permission: Permission, fields: tuple[str, ...], *more: str) -> str:
    privilege = f"`{_short(permission.privilege)}`" if permission.privilege else "none: every user"
    on = ", ".join(f"`{field}`" for field in fields) if fields else "all"
    if permission.if_named:
        on += ", if given"
    return f"| {' | '.join([f'`{name}`', privilege, on if permission.privilege else '', *more])} |\n"


def _short(privilege: str) -> str:
    return privilege.removeprefix("Privilege")


def _undeclared(name: str) -> Permission:
    raise ValueError(f"{name} declares no permission")
