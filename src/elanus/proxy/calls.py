"""The path of every call on a client port, independent of the wire it came by.

A front (gRPC) finds out which operation is called and by whom, and passes both to `Calls.answer`. Only there
is a request refused for a part that the operation does not understand, the guard asked, the trace begun and
ended, an error turned into an answer, and the call counted. The RPCs of the Milvus service
(`elanus.proxy.wire.operations`) and the calls of Elanus' own clients (`elanus.proxy.wire.connector`) are both
operations, so no call reaches a verb by another way.

Each operation declares a `Permission`: a privilege, and the request field that names the objects on which the
caller must hold it. The guard enforces them (`elanus.proxy.access.guard`). Only what a client may not do is
raised to the front: each wire has its own form for that.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from enum import StrEnum
from typing import Any, Protocol, TypeVar

import structlog
from msgspec import Struct

from elanus.core.errors import AccessRefused, ElanusError, Internal
from elanus.core.explanation import Explanation
from elanus.core.trail import end_following, follow
from elanus.proxy.access.sign_in import SignIn
from elanus.proxy.read_watch import ReadWatch
from elanus.rpc.tracing import end_trace, new_trace, set_trace, trace_id

_log = structlog.get_logger(__name__)

Method = TypeVar("Method", bound=Callable[..., Any])

Observer = Callable[[str, int, float], None]
"""Called after each answer with the operation's name, the status code (0: success) and the seconds taken."""

NO_PRIVILEGE = ""
"""The privilege of operations that every caller may use, as the reference lets every user."""

ARRIVAL = "PrivilegeCreateCollection"
"""The privilege for making a collection in a database, by whatever operation."""
_PERMISSION = "declared_permission"


class ObjectType(StrEnum):
    """A privilege is held on one of these: the names of ``common.ObjectType`` in the Milvus protos."""

    COLLECTION = "Collection"
    GLOBAL = "Global"
    USER = "User"


@dataclass(frozen=True, slots=True)
class Permission:
    """The privilege that the caller of an operation must hold, and on what.

    ``privilege``: a name of ``common.ObjectPrivilege`` in the Milvus protos, or `NO_PRIVILEGE`.
    ``object_field``: the request field that names the objects; "" if no field does. ``user.name`` is the
    field ``name`` of the message in the field ``user``. ``arrival_field``: the request field that names a
    database in which the operation makes a collection; where it is not the request's own, the caller needs
    `ARRIVAL` in it as well.
    """

    privilege: str
    object_type: ObjectType
    object_field: str = ""
    arrival_field: str = ""


class Caller(Struct, frozen=True, kw_only=True, gc=False):
    """The caller of an operation.

    ``database``: the one that the connection chose, "" if none; a request may name another. ``client``: the
    identity of the client program, the same in all its calls. ``time_left_s``: when the call arrived; None if
    the client waits without end. ``trace``: the id that the client sent, "" if none. ``user``: who signed in
    (`elanus.proxy.access.sign_in`), "" in a server without users. ``key``: the id of the API key by which it
    did, "" for a password. ``origin``: the address that the call came from.
    ``idempotency_key``: what the client calls the request, to have a repeated one known; "" if it does not.
    ``explain``: gets the explanation of the call, if it is a read; None if the client wants none. A
    `Struct`, because one is made per call and a frozen dataclass takes a microsecond more.
    """

    database: str = ""
    client: str = ""
    time_left_s: float | None = None
    trace: str = ""
    user: str = ""
    key: str = ""
    origin: str = ""
    idempotency_key: str = ""
    explain: list[Explanation] | None = None


class Guard(Protocol):
    """Decides which calls are allowed. Access control supplies an implementation."""

    def allow(
        self,
        caller: Caller,
        privilege: str,
        object_type: ObjectType,
        database: str,
        object_names: tuple[str, ...],
    ) -> None:
        """Return if the caller holds the privilege on all the objects; otherwise raise an `ElanusError`.

        Called for every call, before anything is done, in the thread that answers it. ``privilege``:
        `NO_PRIVILEGE` means that any caller known to the guard is allowed. ``object_names``: names in
        ``database``; empty if the request names none, which requires the privilege on all objects.
        """
        ...


@dataclass(frozen=True, slots=True)
class Finished:
    """A call that was answered or refused, for the audit log. ``refused``: by sign-in or by the guard."""

    operation: str
    caller: Caller
    privilege: str
    object_type: str
    database: str
    objects: tuple[str, ...]
    refused: bool
    code: int
    seconds: float
    trace: str


class Audit(Protocol):
    """Where finished calls are recorded. Called from the threads that answer: it must not block."""

    def record(self, call: Finished) -> None: ...


class AllowAll:
    """A `Guard` that allows every call: the server has no users."""

    def allow(
        self,
        caller: Caller,
        privilege: str,
        object_type: ObjectType,
        database: str,
        object_names: tuple[str, ...],
    ) -> None:
        return


def requires(
    privilege: str, on: str = "", object_type: ObjectType | None = None, arrives_in: str = ""
) -> Callable[[Method], Method]:
    """Declare the permission of the operation that the method implements.

    ``on``: the `Permission.object_field`. ``object_type``: by default a collection if a field is named, else
    global. ``arrives_in``: the `Permission.arrival_field`.
    """
    if object_type is None:
        object_type = ObjectType.COLLECTION if on else ObjectType.GLOBAL
    permission = Permission(privilege, object_type, on, arrives_in)

    def declare(method: Method) -> Method:
        setattr(method, _PERMISSION, permission)
        return method

    return declare


def permission_of(method: object) -> Permission | None:
    """The permission that `requires` declared; None if there is none."""
    return getattr(method, _PERMISSION, None)


_UNKNOWN = Permission(NO_PRIVILEGE, ObjectType.GLOBAL)


class PassedOn(Exception):
    """Raised in a call that another process answers. Here it is neither counted nor recorded."""


class Operation(Protocol):
    """One operation of a front, with everything about it that depends on the form of its messages."""

    @property
    def name(self) -> str:
        """The name in metrics and logs, unique among all operations of a client port."""

    @property
    def permission(self) -> Permission: ...

    def read(self, sent: Any) -> Any:
        """Return the request. Raises `ElanusError` if the operation does not understand all of it."""

    def objects(self, request: Any, caller: Caller) -> tuple[str, tuple[str, ...]]:
        """Return the database that the request refers to, and the names in the permission's field."""

    def run(self, request: Any, caller: Caller) -> Any:
        """Do it. Returns the answer in the form of the wire; raises `ElanusError`."""

    def failed(self, error: ElanusError) -> Any:
        """Return the answer that reports the error."""


class Calls:
    """All operations of a client port, behind one guard. Safe to call from any thread.

    ``sign_in``: how a front finds out the user of a `Caller`; None for a server without users. ``audit``:
    where finished calls are recorded. ``watch``: which reads are explained. Raises `ValueError` when two
    operations have the same name.
    """

    def __init__(
        self,
        operations: Iterable[Operation],
        guard: Guard,
        observe: Observer,
        sign_in: SignIn | None = None,
        audit: Audit | None = None,
        watch: ReadWatch | None = None,
    ) -> None:
        self._watch = watch or ReadWatch()
        self._operations: dict[str, Operation] = {}
        for operation in operations:
            if operation.name in self._operations:
                raise ValueError(f"two implementations of the operation {operation.name}")
            self._operations[operation.name] = operation
        self._allow = guard.allow
        self._observe = observe
        self.sign_in = sign_in or SignIn(None)
        self._audit = audit

    def __contains__(self, name: str) -> bool:
        return name in self._operations

    def answer(self, name: str, sent: Any, caller: Caller) -> Any:
        """Return the operation's answer to the message ``sent``. Errors are answers too.

        Raises `AccessRefused` when the guard refuses the caller, `PassedOn` when the operation or the guard
        does, and `KeyError` for a name that is no operation's.
        """
        operation = self._operations[name]
        started_s = self._watch.now_s()
        trace_text = caller.trace or new_trace()
        trace = set_trace(trace_text)
        trail = self._watch.begin(name, caller.explain, started_s)
        followed = None if trail is None else follow(trail)
        code = 0
        required = operation.permission
        database: str = ""
        names: tuple[str, ...] = ()
        try:
            request = operation.read(sent)
            database, names = operation.objects(request, caller)
            self._allow(caller, required.privilege, required.object_type, database, names)
            if required.arrival_field:
                self._allow_arrival(caller, database, getattr(request, required.arrival_field))
            answer = operation.run(request, caller)
        except PassedOn:
            raise
        except AccessRefused as error:
            self._finish(
                name, caller, required, database, names, error.code, started_s, trace_text, refused=True
            )
            raise
        except ElanusError as error:
            code = error.code
            answer = operation.failed(error)
        except Exception as error:  # noqa: BLE001 - a defect: logged in full, reported in general terms
            reported = _defect(name, error)
            code = reported.code
            answer = operation.failed(reported)
        finally:
            end_trace(trace)
            if followed is not None:
                end_following(followed)
        seconds = self._watch.now_s() - started_s
        self._watch.end(trail, name, caller.explain, database, ",".join(names), code, trace_text, seconds)
        self._finish(name, caller, required, database, names, code, started_s, trace_text, refused=False)
        return answer

    def _allow_arrival(self, caller: Caller, database: str, arrival: str) -> None:
        if arrival not in ("", database):
            self._allow(caller, ARRIVAL, ObjectType.GLOBAL, arrival, ())

    def refuse(self, name: str, caller: Caller, error: ElanusError) -> None:
        """Count and record a call whose caller could not be signed in, and which is not answered here."""
        operation = self._operations.get(name)
        required = operation.permission if operation is not None else _UNKNOWN
        self._finish(
            name, caller, required, "", (), error.code, self._watch.now_s(), caller.trace, refused=True
        )

    def _finish(
        self,
        name: str,
        caller: Caller,
        required: Permission,
        database: str,
        names: tuple[str, ...],
        code: int,
        started_s: float,
        trace: str,
        *,
        refused: bool,
    ) -> None:
        seconds = self._watch.now_s() - started_s
        self._observe(name, code, seconds)
        if self._audit is not None:
            self._audit.record(
                Finished(
                    name,
                    caller,
                    required.privilege,
                    required.object_type,
                    database,
                    names,
                    refused,
                    code,
                    seconds,
                    trace,
                )
            )


def _defect(name: str, error: Exception) -> Internal:
    """Return the error that a client gets for an unexpected exception, which is logged in full.

    Must be called while the exception is being handled, so that the log gets its traceback.
    """
    _log.error("rpc failed unexpectedly", rpc=name, trace_id=trace_id(), error=repr(error), exc_info=True)
    return Internal(f"{name} failed inside the server: its log has the details")
