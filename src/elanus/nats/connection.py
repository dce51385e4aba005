"""One connection to NATS: requests that end when it breaks, and the servers' refusals as errors of ours.

The client library reconnects by itself, for as long as it takes, and subscribes again. Requests that were
under way when a connection broke never get an answer. Here such a request ends with `Interrupted`
immediately, and the caller finds out what became of it.
"""

from __future__ import annotations

import asyncio
import contextlib
import itertools
from collections.abc import AsyncIterator, Awaitable, Callable, Coroutine, Mapping
from pathlib import Path
from typing import Any, Self
from urllib.parse import ParseResult

import msgspec
import structlog
from nats.aio.client import Client
from nats.aio.msg import Msg
from nats.aio.transport import TcpTransport
from nats.errors import AuthorizationError, Error
from nats.protocol.parser import AUTHORIZATION_VIOLATION, PERMISSIONS_ERR

from elanus.core.errors import DiskFull, InvalidParameter, Unavailable
from elanus.nats.source import NatsSource

RELEASE_MIN = (2, 12)
_CONNECT_TIMEOUT_S = 10.0
_RECONNECT_WAIT_S = 0.2
_REQUEST_TIMEOUT_S = 5.0
_PING_EVERY_S = 5.0
_PINGS_UNANSWERED_MAX = 2
"""A server that answers no more pings than this counts as lost, as one does whose machine is gone: nothing
else reports that. The client's own values would take six minutes."""
_UNAUTHORIZED = "Authorization Violation"
_NO_RESPONDERS = "503"
_CREDENTIALS_MARK = "BEGIN NATS USER JWT"
NO_STREAM = 10059
"""JetStream's error code for a stream that does not exist."""
NO_MESSAGE = 10037
"""JetStream's error code for a message that a stream does not hold."""
_NO_ROOM = frozenset({10023, 10047, 10077})
"""Error codes: insufficient resources, storage resources exceeded, maximum bytes exceeded."""
_logger = structlog.get_logger(__name__)


Receive = Callable[["Msg | None"], None]
"""Takes incoming messages, in order. ``None``: the connection broke, and messages in flight are lost."""


class Interrupted(Exception):
    """No answer came: the connection broke, or the request timed out. It may or may not have taken effect."""


class Unanswered(Interrupted):
    """The connection held all the time, but the request timed out."""


class Refused(Exception):
    """The server answered with an error. ``code`` is JetStream's own (``err_code``)."""

    def __init__(self, code: int, description: str) -> None:
        super().__init__(f"{description} ({code})")
        self.code = code
        self.description = description


class _Transport(TcpTransport):
    """Ends at once when closed. The client would wait until the server has taken what is buffered: forever,
    if the server's machine is gone.

    A new connection ends the one before it: the client leaves those open that a server refused.
    """

    def __bool__(self) -> bool:
        """The client makes its own in place of one that is not true, as others are before they connect."""
        return True

    async def connect(self, uri: ParseResult, buffer_size: int, connect_timeout: int) -> None:
        self.close()
        await super().connect(uri, buffer_size, connect_timeout)

    def close(self) -> None:
        if self._io_writer is not None:
            self._io_writer.transport.abort()


class _Client(Client):
    """Connects again after an error that the server reports before it ends the connection, as it does when
    credentials have expired or were withdrawn. The client would stay closed for good."""

    async def _process_err(self, err_msg: str) -> None:
        if PERMISSIONS_ERR in err_msg or not self.options["allow_reconnect"]:
            await super()._process_err(err_msg)
            return
        text = err_msg.strip("' ")
        error = AuthorizationError() if AUTHORIZATION_VIOLATION in err_msg else Error(f"nats: {text}")
        await self._error_cb(error)
        await self._process_op_err(error)

    async def _attempt_reconnect(self) -> None:
        """The client gives up silently on errors that it does not expect, such as those of a file of
        credentials that is just being replaced."""
        while True:
            try:
                await super()._attempt_reconnect()
            except Exception as error:  # noqa: BLE001 - whatever it is, it may pass: without NATS all stops
                await self._error_cb(error)
                await asyncio.sleep(_RECONNECT_WAIT_S)
            else:
                return


class NatsConnection:
    """A connection, created with `open`, for one event loop."""

    def __init__(self, source: NatsSource) -> None:
        self.source = source
        self._client = _Client()
        self._client._transport = _Transport()  # type: ignore[no-untyped-call]
        self._answers = ""
        """The prefix of the subjects of answers to our requests."""
        self._tokens = itertools.count()
        self._asking: dict[str, asyncio.Future[Msg | None]] = {}
        """Requests under way. ``None`` for an answer: the connection broke."""
        self._connected = asyncio.Event()
        self._inboxes: set[Receive] = set()
        self._when_connected_again: list[Callable[[], Awaitable[None]]] = []
        self._servers = ", ".join(source.servers)
        self._reported: set[str] = set()
        """The errors that were logged since the connection broke: attempts may go on for hours."""

    @classmethod
    async def open(cls, source: NatsSource, name: str) -> Self:
        """Connect. ``name`` is what the server's monitoring shows.

        Raises `Unavailable` when no server answers, `InvalidParameter` when one refuses the credentials,
        is older than `RELEASE_MIN` or has JetStream disabled.
        """
        self = cls(source)
        try:
            await self._connect(name)
            await self._listen()
            self._check_release()
            await self._check_jetstream()
        except BaseException:
            await self.close()
            raise
        return self

    @property
    def payload_max_bytes(self) -> int:
        """The maximum size of one message that the server takes, headers included."""
        return self._client.max_payload

    async def ready(self, timeout_s: float) -> None:
        """Return once connected. Raises `Interrupted` when that takes longer."""
        try:
            async with asyncio.timeout(timeout_s):
                await self._connected.wait()
        except TimeoutError:
            raise Interrupted(f"not connected for {timeout_s:g} s") from None

    async def api(
        self, subject: str, body: Mapping[str, Any] | None = None, timeout_s: float = _REQUEST_TIMEOUT_S
    ) -> dict[str, Any]:
        """Call JetStream's API; ``subject`` is without its prefix. Raises `Interrupted`, `Refused`."""
        payload = msgspec.json.encode(body) if body else b""
        answer = await self.request(f"$JS.API.{subject}", payload, None, timeout_s)
        return decoded(answer.data)

    async def request(
        self,
        subject: str,
        payload: bytes,
        headers: dict[str, str] | None,
        timeout_s: float = _REQUEST_TIMEOUT_S,
    ) -> Msg:
        """Send a request. Raises `Interrupted`; `Unanswered` when it only timed out.

        The client's own request method takes two more tasks, and keeps waiting when the connection breaks.
        """
        if not self._connected.is_set():
            raise Interrupted("not connected")
        token = str(next(self._tokens))
        answer: asyncio.Future[Msg | None] = asyncio.get_running_loop().create_future()
        self._asking[token] = answer
        try:
            async with asyncio.timeout(timeout_s):
                await self._client.publish(subject, payload, f"{self._answers}.{token}", headers)
                message = await answer
        except TimeoutError:
            raise Unanswered(f"no answer on {subject} within {timeout_s:g} s") from None
        except Error as error:
            raise Interrupted(f"no answer on {subject}: {error!r}") from None
        finally:
            del self._asking[token]
        if message is None:
            raise Interrupted("the connection was lost")
        if message.headers and message.headers.get("Status") == _NO_RESPONDERS:
            raise Interrupted(f"no server answers on {subject}: JetStream is starting, or disabled")
        return message

    async def publish(
        self, subject: str, payload: bytes, headers: dict[str, str] | None = None, reply: str = ""
    ) -> None:
        """Send a message without waiting for an answer. Raises `Interrupted`."""
        if not self._connected.is_set():
            raise Interrupted("not connected")
        try:
            await self._client.publish(subject, payload, reply, headers)
        except Error as error:
            raise Interrupted(f"{subject} could not be written to: {error!r}") from None

    def when_connected_again(self, work: Callable[[], Awaitable[None]]) -> None:
        """Run ``work`` each time a broken connection has been replaced."""
        self._when_connected_again.append(work)

    @contextlib.asynccontextmanager
    async def inbox(self, receive: Receive) -> AsyncIterator[str]:
        """A subject of our own; ``receive`` is called with what arrives on it and one level below.

        It is called where the message is taken off the connection, so that no message waits for a task of
        its reader. Raises `Interrupted`.
        """
        subject = self._client.new_inbox()

        async def arrived(message: Msg) -> None:
            receive(message)

        try:
            subscriptions = [await self._client.subscribe(s, cb=arrived) for s in (subject, f"{subject}.*")]
        except Error as error:
            raise Interrupted(f"no subscription: {error!r}") from None
        self._inboxes.add(receive)
        try:
            yield subject
        finally:
            self._inboxes.discard(receive)
            for subscription in subscriptions:
                with contextlib.suppress(Error):
                    await subscription.unsubscribe()

    async def close(self) -> None:
        self._connected.clear()
        self._break()
        with contextlib.suppress(Error, OSError):
            await self._client.close()

    async def _connect(self, name: str) -> None:
        try:
            await _within(
                _CONNECT_TIMEOUT_S,
                self._client.connect(
                    list(self.source.servers),
                    name=name,
                    error_cb=self._on_error,
                    disconnected_cb=self._on_lost,
                    reconnected_cb=self._on_connected_again,
                    # only for the first connection: refused credentials would otherwise be sent forever
                    allow_reconnect=False,
                    max_reconnect_attempts=-1,
                    ping_interval=_PING_EVERY_S,  # type: ignore[arg-type]  # only passed to sleep
                    max_outstanding_pings=_PINGS_UNANSWERED_MAX,
                    reconnect_time_wait=_RECONNECT_WAIT_S,  # type: ignore[arg-type]  # only passed to sleep
                    **_credentials(self.source.credentials),
                ),
            )
        except (TimeoutError, OSError):
            raise Unavailable(f"no NATS server answers at {self._servers}; is it running?") from None
        except Error as error:
            if not _is_refusal(error):
                raise Unavailable(f"NATS at {self._servers} refuses the connection: {error}") from None
            raise InvalidParameter(
                f"NATS at {self._servers} refuses the credentials of "
                f"{self.source.credentials or 'a client without any'}"
            ) from None
        self._client.options["allow_reconnect"] = True
        self._connected.set()

    async def _listen(self) -> None:
        """Subscribe to the answers to our requests; the client repeats this on each new connection."""
        self._answers = self._client.new_inbox()

        async def answered(message: Msg) -> None:
            waiting = self._asking.get(message.subject.rpartition(".")[2])
            if waiting is not None and not waiting.done():  # otherwise the answer came too late
                waiting.set_result(message)

        try:
            await self._client.subscribe(f"{self._answers}.*", cb=answered)
        except Error as error:
            raise Unavailable(f"NATS at {self._servers} refuses a subscription: {error!r}") from None

    def _check_release(self) -> None:
        version = self._client.connected_server_version
        if (version.major, version.minor) < RELEASE_MIN:
            wanted = ".".join(map(str, RELEASE_MIN))
            raise InvalidParameter(
                f"NATS at {self._servers} is release {version.major}.{version.minor}; "
                f"the log needs {wanted} or newer, which store several messages as one"
            )

    async def _check_jetstream(self) -> None:
        try:
            await self.api("INFO")
        except Refused as error:
            raise InvalidParameter(
                f"NATS at {self._servers} offers no JetStream: {error.description}"
            ) from None
        except Interrupted as error:
            raise Unavailable(f"JetStream at {self._servers} does not answer: {error}") from None

    async def _on_error(self, error: Exception) -> None:
        text = repr(error)
        if text in self._reported:
            return
        self._reported.add(text)
        if _is_refusal(error):
            _logger.error("NATS credentials refused", servers=self._servers)
        else:
            _logger.info("NATS connection error", error=text)

    async def _on_lost(self) -> None:
        if self._connected.is_set():
            _logger.warning("NATS connection lost; reconnecting", servers=self._servers)
        self._connected.clear()
        self._break()

    async def _on_connected_again(self) -> None:
        self._reported.clear()
        self._connected.set()
        for work in self._when_connected_again:
            await work()

    def _break(self) -> None:
        for waiting in self._asking.values():
            if not waiting.done():
                waiting.set_result(None)
        for receive in tuple(self._inboxes):
            receive(None)


async def _within(timeout_s: float, work: Coroutine[Any, Any, None]) -> None:
    """Await a coroutine of the client. Raises `TimeoutError`, and what it raises.

    `asyncio.timeout` cancels once. The client waits with `asyncio.wait_for`, which before Python 3.12 loses a
    cancellation that arrives at the same moment as the awaited result: it would connect forever.
    """
    task = asyncio.ensure_future(work)
    try:
        await asyncio.wait((task,), timeout=timeout_s)
        if not task.done():
            raise TimeoutError
        task.result()
    finally:
        while not task.done():
            task.cancel()
            await asyncio.wait((task,), timeout=_RECONNECT_WAIT_S)
        if not task.cancelled():
            task.exception()  # marks an error as retrieved, whatever comes after the cancellation


def decoded(data: bytes) -> dict[str, Any]:
    """Decode JetStream's answer. Raises `Refused` when it is an error."""
    answer: dict[str, Any] = msgspec.json.decode(data)
    error = answer.get("error")
    if error:
        raise Refused(error.get("err_code", 0), error.get("description", "no description"))
    return answer


def client_error(error: Refused, what: str) -> DiskFull | Unavailable:
    """Return the error for a caller that wanted ``what``."""
    if error.code in _NO_ROOM:
        return DiskFull(f"NATS has no room for {what}: {error.description}; give JetStream more storage")
    return Unavailable(f"NATS refused {what}: {error}")


def _is_refusal(error: Exception) -> bool:
    return isinstance(error, AuthorizationError) or _UNAUTHORIZED in str(error)


def _credentials(file: Path | None) -> dict[str, Any]:
    """Return the client's options for a credentials file: one that NATS made, or a line ``user:password``.

    The client reads either again for each connection that it makes, so the file may be replaced.
    """
    if file is None:
        return {}
    text = _read(file)
    if _CREDENTIALS_MARK in text:
        return {"user_credentials": str(file)}
    _user_and_password(file)  # one that is neither is reported now
    return {"user": lambda: _user_and_password(file)[0], "password": lambda: _user_and_password(file)[1]}


def _user_and_password(file: Path) -> tuple[str, str]:
    user, colon, password = _read(file).strip().partition(":")
    if not colon:
        raise InvalidParameter(f"{file} has neither NATS credentials nor a line user:password")
    return user, password


def _read(file: Path) -> str:
    try:
        return file.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise InvalidParameter(f"the NATS credentials in {file} cannot be read: {error}") from None
