"""A gRPC server that answers short calls in the thread that reads the completion queue."""

from __future__ import annotations

import os
import threading
from collections.abc import Callable, Hashable, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from functools import partial
from time import thread_time
from typing import Any, NamedTuple

import grpc
import structlog

from elanus.rpc.serving import queue
from elanus.rpc.serving.calls import UnaryCall, UnaryMethod
from elanus.rpc.serving.held import SMALL_MAX_BYTES, Held, HeldBytes, HeldHandler
from elanus.rpc.serving.leading import Leadership
from elanus.rpc.serving.placement import Placement, short_s
from elanus.rpc.serving.waiting import on_wait

_log = structlog.get_logger("rpc")

KindOf = Callable[[str], Callable[[Any], Hashable] | None]
"""By the path of a method: what finds out the kind of one of its requests. None: all its calls go to the
pool."""
SHORT_REQUEST_MAX_BYTES = 64 * 1024
"""Larger requests go to the pool before they are decoded."""
_ASKED = 64
"""Calls that the library may hand over before the loop asks for more; beyond, it keeps them in a list of
its own."""
_DISPLACED_MAX = 8
"""Handlers that lost leadership, beyond which no further one begins in the leader."""
_CANCEL_WAIT_S = 10.0


class _Asked(NamedTuple):
    """The details of a call, for handlers that look them up."""

    method: str
    invocation_metadata: Any


class LoopServer:
    """Implements `elanus.rpc.serving.pooled.Server`: short calls run in the thread that reads the queue,
    others in ``workers``.

    ``kind_of``: see `KindOf`. ``short_max_bytes``: larger requests go to ``workers``. ``held``: counts the
    bytes of large requests and answers; None: nothing does.
    """

    def __init__(
        self,
        handlers: Sequence[grpc.GenericRpcHandler],
        workers: ThreadPoolExecutor,
        options: Sequence[tuple[str, Any]],
        kind_of: KindOf,
        short_max_bytes: int = SHORT_REQUEST_MAX_BYTES,
        placement: Placement | None = None,
        held: Held | None = None,
    ) -> None:
        self._held = None if held is None else held.requests
        self._answers = None if held is None else held.answers
        self._handlers = tuple(handlers)
        self._workers = workers
        self._kind_of = kind_of
        self._short_max_bytes = short_max_bytes
        self._placement = placement or Placement(short_s(os.cpu_count() or 1))
        # Streams are grpcio's, which counts nothing.
        streams = handlers if held is None else [HeldHandler(handler, held.requests) for handler in handlers]
        self._queue = queue.CompletionQueue(options, streams)
        self._methods: dict[bytes, UnaryMethod | None] = {}
        self._leadership = Leadership(self._lead, "milvus-loop")
        self._call_lock = threading.Lock()
        self._stage_lock = threading.Lock()
        self._is_started = self._is_stopping = self._is_shut = False
        self._asked = 0
        self._live = 0
        """Calls that are not over. Changed by the reading thread only."""
        self._ended = threading.Event()

    def open(self, address: str, credentials: grpc.ServerCredentials | None) -> int:
        return self._queue.open(address, credentials)

    def start(self) -> None:
        self._queue.start()
        self._is_started = True
        for _ in range(_ASKED):
            self._ask()
        self._leadership.start()

    def stop(self, grace_s: float) -> None:
        with self._stage_lock:
            if not self._is_started:  # the library aborts the process when such a server is destroyed
                return
            if not self._is_stopping:
                self._is_stopping = True
                self._queue.shut_down(self._on_shut)
        if not self._ended.wait(grace_s):
            self._queue.cancel_all_calls()
            if not self._ended.wait(_CANCEL_WAIT_S):
                # The remaining calls are in use by threads that do not return, so nothing may be destroyed.
                _log.error("calls not ended", calls=self._live)
                return
        self._queue.destroy()

    # in the thread that reads the queue

    def _lead(self, term: int) -> None:
        poll, leadership = self._queue.poll, self._leadership
        on_wait(partial(self._leave, term))
        while leadership.term == term and not self._ended.is_set():
            event = poll()
            try:
                outcome = event.tag(event)
                if outcome is not None:
                    self._on_stream(outcome)
            except BaseException as error:  # noqa: BLE001 - one call's failure must not end the others
                _report("call failed in the serving loop", error)
            # An event keeps its call alive, and a call that is over must not be kept while waiting.
            event = outcome = None
        on_wait(None)

    def _leave(self, term: int) -> None:
        self._leadership.pass_on(term)

    def _ask(self) -> None:
        with self._stage_lock:
            if not self._is_stopping:
                self._queue.ask(self._on_arrival)
                self._asked += 1

    def _on_arrival(self, arrival: Any) -> None:
        self._asked -= 1
        if not arrival.success:
            self._end_if_over()
            return
        self._ask()
        path = queue.path_of(arrival)
        self._live += 1
        method = self._methods.get(path) or self._find(path, arrival)
        if method is not None:
            UnaryCall(arrival, method, self._call_lock, self._on_request, self._on_over, self._answers)
        elif self._queue.stream(arrival, self._workers) is None:
            self._on_over()

    def _find(self, path: bytes, arrival: Any) -> UnaryMethod | None:
        """Return the unary method of the path; None for streams and unknown methods, which are not kept."""
        asked = _Asked(path.decode(errors="replace"), arrival.invocation_metadata)
        for handler in self._handlers:
            found = handler.service(asked)
            if found is None:
                continue
            if found.request_streaming or found.response_streaming:
                return None
            method = UnaryMethod(
                asked.method,
                found.unary_unary,
                found.request_deserializer or bytes,
                found.response_serializer or bytes,
                self._kind_of(asked.method),
            )
            self._methods[path] = method
            return method
        return None

    def _on_request(self, call: UnaryCall, data: bytes) -> None:
        kind_of = call.method.kind
        if self._held is not None and len(data) > SMALL_MAX_BYTES:
            self._hold(call, data, self._held)
            return
        if kind_of is None or len(data) > self._short_max_bytes:
            self._hand_to_pool(call, partial(self._work_unmeasured, call, data))
            return
        try:
            request = call.method.deserialize(data)
        except Exception:  # noqa: BLE001 - reported by a worker: the log may be slow
            self._hand_to_pool(call, partial(self._work_unmeasured, call, data))
            return
        kind = kind_of(request)
        if self._leadership.displaced < _DISPLACED_MAX and self._placement.is_short(kind):
            self._run_here(call, kind, request)
        else:
            self._hand_to_pool(call, partial(self._work, call, kind, request))

    def _hold(self, call: UnaryCall, data: bytes, held: HeldBytes) -> None:
        """Have a large request answered by the pool, unless too much is held."""
        size_bytes = len(data)
        if not held.add(size_bytes):
            call.end(grpc.StatusCode.UNAVAILABLE, held.refusal())
            return

        def work(data: bytes = data) -> None:
            try:
                self._work_unmeasured(call, data)
            finally:
                held.remove(size_bytes)

        if not self._hand_to_pool(call, work):
            held.remove(size_bytes)

    def _run_here(self, call: UnaryCall, kind: Hashable, request: Any) -> None:
        leadership = self._leadership
        term = leadership.term
        leadership.begin(call.watch)
        began_s = thread_time()
        try:
            call.run(request)
        finally:
            leads = leadership.end(term)
        self._placement.ran(kind, thread_time() - began_s, held_up=not leads)

    def _hand_to_pool(self, call: UnaryCall, work: Callable[[], None]) -> bool:
        """Have the pool do it. Returns whether it takes work."""
        call.watch()
        try:
            self._workers.submit(_logged, work)
        except RuntimeError:  # the pool was shut down
            call.end(grpc.StatusCode.UNAVAILABLE, "the server is stopping")
            return False
        return True

    def _on_over(self) -> None:
        self._live -= 1
        self._end_if_over()

    def _on_stream(self, outcome: queue.StreamEnd) -> None:
        state, callbacks = outcome
        for callback in callbacks:
            callback()
        if state is not None:
            self._on_over()

    def _on_shut(self, _: Any) -> None:
        self._is_shut = True
        self._end_if_over()

    def _end_if_over(self) -> None:
        if self._is_shut and not self._live and not self._asked:
            self._leadership.finish()
            self._ended.set()

    # in a worker

    def _work_unmeasured(self, call: UnaryCall, data: bytes) -> None:
        if call.is_closed:  # the client gave up while the call was queued
            return
        request = call.request_of(data)
        if request is not None:
            call.run(request)

    def _work(self, call: UnaryCall, kind: Hashable, request: Any) -> None:
        if call.is_closed:
            return
        on_wait(call.note_wait)
        began_s = thread_time()
        try:
            call.run(request)
        finally:
            on_wait(None)
        self._placement.ran(kind, thread_time() - began_s, held_up=call.has_waited)


def _logged(work: Callable[[], None]) -> None:
    """Nobody reads the result of a call in the pool, so an error of its own is logged here."""
    try:
        work()
    except Exception as error:  # noqa: BLE001 - as said
        _report("call failed in a worker", error)


def _report(event: str, error: BaseException) -> None:
    # Without its log (a closed pipe, a full disk) the server still serves.
    with suppress(Exception):
        _log.error(event, error=repr(error), exc_info=error)
