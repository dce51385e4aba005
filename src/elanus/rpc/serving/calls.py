"""A unary call that the loop serves: its life on the queue, and the context that its handler is given.

A call is over when nothing more will come from the queue for it: no batch is unfinished, and the end of the
call was seen (`closed`), which comes when the answer has gone out or the client has given up. A batch may
only be started before that; the lock orders the two, since handlers start batches in other threads than the
one that reads the queue.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import Any, NoReturn

import grpc
import structlog

from elanus.rpc.serving import queue
from elanus.rpc.serving.held import SMALL_MAX_BYTES, HeldAnswers
from elanus.rpc.serving.waiting import serves

_LOG_S = 60.0
_ERROR_MAX_CHARS = 300
_log = structlog.get_logger("rpc")


class Aborted(Exception):
    """Raised by `UnaryCall.abort`: the handler has said how the call ends."""


@dataclass(frozen=True, slots=True)
class UnaryMethod:
    """A method of one request and one response. ``kind``: see `elanus.rpc.serving.loop.KindOf`."""

    path: str
    behavior: Callable[[Any, Any], Any]
    deserialize: Callable[[bytes], Any]
    serialize: Callable[[Any], bytes]
    kind: Callable[[Any], Any] | None


class MalformedLog:
    """Logs malformed requests, one in a minute: anybody can send them, and the log must not fill the disk."""

    def __init__(self, now_s: Callable[[], float] = time.monotonic) -> None:
        self._now_s = now_s
        self._logged_s = float("-inf")
        self._not_logged = 0

    def note(self, rpc: str, error: Exception) -> None:
        """From any thread: a number that two of them change at once may be wrong by one."""
        now_s = self._now_s()
        if now_s - self._logged_s < _LOG_S:
            self._not_logged += 1
            return
        self._logged_s, not_logged, self._not_logged = now_s, self._not_logged, 0
        _log.warning(
            "malformed request", rpc=rpc, error=repr(error)[:_ERROR_MAX_CHARS], not_logged=not_logged
        )


malformed = MalformedLog()


class UnaryCall:
    """One call. Implements of ``grpc.ServicerContext`` what handlers of one response can use.

    ``received(call, data)`` is called in the reading thread with the request, ``over()`` when the call is
    over. ``held``: counts the bytes of the answer until it has gone out; None: nothing does.
    """

    __slots__ = (
        "_arrival",
        "_callbacks",
        "_closed",
        "_code",
        "_details",
        "_due",
        "_held",
        "_held_bytes",
        "_lock",
        "_over",
        "_peer",
        "_received",
        "_trailing",
        "_watched",
        "has_waited",
        "is_answered",
        "method",
    )

    def __init__(
        self,
        arrival: Any,
        method: UnaryMethod,
        lock: threading.Lock,
        received: Callable[[UnaryCall, bytes], None],
        over: Callable[[], None],
        held: HeldAnswers | None = None,
    ) -> None:
        self._arrival = arrival
        self.method = method
        self._lock = lock
        self._received = received
        self._over = over
        self._held = held
        self._held_bytes = 0
        self._due = 1
        self._closed = self._watched = self.is_answered = False
        self.has_waited = False
        self._code: grpc.StatusCode | None = None
        self._details = b""
        self._peer = ""
        self._trailing: Any = None
        self._callbacks: tuple[Callable[[], None], ...] = ()
        queue.receive(arrival.call, self._on_message)

    # what happens on the queue, in the reading thread

    def _on_message(self, event: Any) -> None:
        with self._lock:
            self._due -= 1
        data = queue.message_of(event)
        if data is None:
            text = f'"{self.method.path}" requires exactly one request message.'
            self.end(grpc.StatusCode.UNIMPLEMENTED, text)
        else:
            try:
                self._received(self, data)
            except Exception as error:  # noqa: BLE001 - a defect: logged, and the call ends
                self.end(grpc.StatusCode.UNKNOWN, "Error in service handler!")
                _log.error("request not handled", rpc=self.method.path, error=repr(error), exc_info=True)

    def _on_answered(self, _: Any) -> None:
        self._let_go()
        self._finish_batch(closes=not self._watched)

    def _on_closed(self, _: Any) -> None:
        self._finish_batch(closes=True)

    def _finish_batch(self, closes: bool) -> None:
        callbacks: Sequence[Callable[[], None]] = ()
        with self._lock:
            self._due -= 1
            if closes:
                self._closed = True
                callbacks = self._callbacks
                self._callbacks = ()
            is_over = self._closed and not self._due
        if is_over:
            self._over()
        for callback in callbacks:
            _guarded(callback)

    # what the server does, from any thread

    @property
    def is_closed(self) -> bool:
        """Whether the client is gone or answered: nothing can be sent any more."""
        return self._closed

    def note_wait(self) -> None:
        """Note that the handler waits for others."""
        self.has_waited = True

    def watch(self) -> None:
        """Be notified when the client gives up: the call may take long."""
        with self._lock:
            if self._watched or self.is_answered:
                return
            self._watched = True
            self._due += 1
        queue.watch(self._arrival.call, self._on_closed)

    def end(self, code: grpc.StatusCode | None, details: str = "", message: bytes | None = None) -> bool:
        """Answer. The handler's own settings are sent in place of ``code`` and ``details``.

        Does nothing, and returns False, if closed.
        """
        with self._lock:
            if self._closed or self.is_answered:
                return False
            self.is_answered = True
            self._due += 1
        queue.answer(
            self._arrival.call,
            code if self._code is None else self._code,
            self._details or details.encode(),
            message,
            self._trailing,
            self._watched,
            self._on_answered,
        )
        return True

    def run(self, request: Any) -> None:
        """Run the handler on a request and answer. Raises nothing that the handler raises."""
        method = self.method
        serves(self._is_gone)
        try:
            response = method.behavior(request, self)
        except Aborted:
            self.end(grpc.StatusCode.UNKNOWN, "RPC Aborted")
            return
        except Exception as error:  # noqa: BLE001 - a handler's defect: logged, and the call ends
            self.end(grpc.StatusCode.UNKNOWN, f"Exception calling application: {error}")
            _log.error("handler failed", rpc=method.path, error=repr(error), exc_info=True)
            return
        finally:
            serves(None)
        try:
            message = method.serialize(response)
        except Exception as error:  # noqa: BLE001 - as above
            self.end(grpc.StatusCode.INTERNAL, "Failed to serialize response!")
            _log.error("response not serialized", rpc=method.path, error=repr(error), exc_info=True)
            return
        held = self._held
        if held is not None and len(message) > SMALL_MAX_BYTES:
            # Methods with kinds are reads, which may be repeated.
            if not held.add(len(message), may_withhold=method.kind is not None):
                self.end(grpc.StatusCode.UNAVAILABLE, held.refusal())
                return
            self._held_bytes = len(message)
        if not self.end(None, "", message):
            self._let_go()

    def _let_go(self) -> None:
        if self._held is not None and self._held_bytes:
            self._held.remove(self._held_bytes)
            self._held_bytes = 0

    def _is_gone(self) -> bool:
        return self._closed

    def request_of(self, data: bytes) -> Any:
        """Return the request; None if it is malformed: then the call has ended."""
        try:
            return self.method.deserialize(data)
        except Exception as error:  # noqa: BLE001 - the client's fault, in whatever form the codec reports it
            self.end(grpc.StatusCode.INTERNAL, "Exception deserializing request!")
            malformed.note(self.method.path, error)
            return None

    # for handlers: as grpc.ServicerContext

    def invocation_metadata(self) -> Iterable[tuple[str, str | bytes]]:
        metadata: Iterable[tuple[str, str | bytes]] = self._arrival.invocation_metadata
        return metadata

    def peer(self) -> str:
        if not self._peer:  # asked for more than once: by the limit of connections, and for the caller
            peer: bytes = self._arrival.call.peer()
            self._peer = peer.decode()
        return self._peer

    def time_remaining(self) -> float:
        """Seconds to the client's deadline; centuries if it has none."""
        return max(float(self._arrival.call_details.deadline) - time.time(), 0.0)

    def is_active(self) -> bool:
        return not self._closed and not self.is_answered

    def cancel(self) -> None:
        self._arrival.call.cancel()

    def add_callback(self, callback: Callable[[], None]) -> bool:
        """Have ``callback`` called when the client gives up, or is answered. Returns False if it has been."""
        with self._lock:
            if self._closed:
                return False
            self._callbacks += (callback,)
        self.watch()
        return True

    def set_trailing_metadata(self, trailing_metadata: Any) -> None:
        self._trailing = trailing_metadata

    def trailing_metadata(self) -> Any:
        return self._trailing

    def set_code(self, code: grpc.StatusCode) -> None:
        self._code = code

    def code(self) -> grpc.StatusCode | None:
        return self._code

    def set_details(self, details: str) -> None:
        self._details = details.encode()

    def details(self) -> bytes:
        return self._details

    def abort(self, code: grpc.StatusCode, details: str) -> NoReturn:
        """End the call with a gRPC error."""
        self._code = grpc.StatusCode.UNKNOWN if code is grpc.StatusCode.OK else code
        self.set_details(details)
        raise Aborted


def _guarded(callback: Callable[[], None]) -> None:
    try:
        callback()
    except Exception as error:  # noqa: BLE001 - must not end the loop
        _log.error("callback of a cancelled call failed", error=repr(error), exc_info=True)
