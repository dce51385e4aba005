"""The path of every call on a client port, independent of the wire it came by.

A front (gRPC, REST) finds out which operation is called and by whom, and passes both to `Calls.answer`. Only
there is a request refused for a part that the operation does not understand, the guard asked, the trace begun
and ended, an error turned into an answer, and the call counted. No call reaches a verb by another way: the
RPCs of the Milvus service (`elanus.proxy.wire.operations`), the calls of Elanus' own clients
(`elanus.proxy.wire.interfaces`) and the REST API's (`elanus.proxy.rest.operations`) are all operations.

Each operation declares a `Permission`: a privilege, and the request field that names the objects on which the
caller must hold it. The guard enforces them (`elanus.proxy.access.guard`). Only what a client may not do is
raised to the front: each wire has its own form for that.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any, Protocol

import structlog

from elanus.core.errors import AccessRefused, ElanusError, Internal
from elanus.core.trail import end_following, follow
from elanus.proxy.access.audit import Audit
from elanus.proxy.access.caller import Caller, FinishedCall
from elanus.proxy.access.guard import Guard
from elanus.proxy.access.permission import ARRIVAL, NO_PRIVILEGE, ObjectType, Permission
from elanus.proxy.access.sign_in import SignIn
from elanus.proxy.read_watch import ReadWatch
from elanus.rpc.tracing import end_trace, new_trace, set_trace, trace_id

_log = structlog.get_logger(__name__)

Observer = Callable[[str, int, float], None]
"""Called after each answer with the operation's name, the status code (0: success) and the seconds taken."""

_UNKNOWN = Permission(NO_PRIVILEGE, ObjectType.GLOBAL)
"""Recorded for a call that names no operation."""


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
        needed = operation.permission
        started_s = self._watch.now_s()
        trace = caller.trace or new_trace()
        traced = set_trace(trace)
        trail = self._watch.begin(name, caller.explain, started_s)
        followed = None if trail is None else follow(trail)
        code = 0
        database: str = ""
        objects: tuple[str, ...] = ()
        try:
            request = operation.read(sent)
            database, objects = operation.objects(request, caller)
            self._check(needed, request, caller, database, objects)
            answer = operation.run(request, caller)
        except PassedOn:
            raise
        except AccessRefused as error:
            code, seconds = error.code, self._watch.now_s() - started_s
            call = FinishedCall(name, caller, needed, database, objects, code, seconds, trace, refused=True)
            self._finish(call)
            raise
        except ElanusError as error:
            code = error.code
            answer = operation.failed(error)
        except Exception as error:  # noqa: BLE001 - a defect: logged in full, reported in general terms
            reported = _defect(name, error)
            code = reported.code
            answer = operation.failed(reported)
        finally:
            end_trace(traced)
            if followed is not None:
                end_following(followed)
        seconds = self._watch.now_s() - started_s
        call = FinishedCall(name, caller, needed, database, objects, code, seconds, trace)
        self._watch.end(trail, call)
        self._finish(call)
        return answer

    def refuse(self, name: str, caller: Caller, error: ElanusError) -> None:
        """Count and record a call whose caller could not be signed in, and which is not answered here."""
        operation = self._operations.get(name)
        needed = operation.permission if operation is not None else _UNKNOWN
        self._finish(FinishedCall(name, caller, needed, code=error.code, trace=caller.trace, refused=True))

    def _check(
        self, needed: Permission, request: Any, caller: Caller, database: str, objects: tuple[str, ...]
    ) -> None:
        """Ask the guard. Raises what it raises."""
        privilege = NO_PRIVILEGE if needed.if_named and not objects else needed.privilege
        self._allow(caller, privilege, needed.object_type, database, objects)
        if needed.arrival_field:
            arrival = getattr(request, needed.arrival_field)
            if arrival not in ("", database):
                self._allow(caller, ARRIVAL, ObjectType.GLOBAL, arrival, ())

    def _finish(self, call: FinishedCall) -> None:
        self._observe(call.operation, call.code, call.seconds)
        if self._audit is not None:
            self._audit.record(call)


def _defect(name: str, error: Exception) -> Internal:
    """Return the error that a client gets for an unexpected exception, which is logged in full.

    Must be called while the exception is being handled, so that the log gets its traceback.
    """
    _log.error("rpc failed unexpectedly", rpc=name, trace_id=trace_id(), error=repr(error), exc_info=True)
    return Internal(f"{name} failed inside the server: its log has the details")
