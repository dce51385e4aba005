"""The JetStream log when servers die, answers get lost, room runs out and others write too."""

from __future__ import annotations

import asyncio
import random
import uuid
from collections import Counter
from collections.abc import Awaitable, Iterator
from pathlib import Path

import pytest
from nats.aio.msg import Msg

from elanus.core.errors import DiskFull, InvalidParameter, Unavailable
from elanus.core.messages import MsgKind
from elanus.core.timestamps import Timestamp
from elanus.devcluster.nats import Nats
from elanus.log.jetstream.log import NatsLog, read_range
from elanus.log.port import START, CorruptLog, EntryHeader, Log, LogEntry, NewEntry, Position, TrimmedLog
from elanus.nats.connection import Interrupted, NatsConnection
from elanus.nats.follower import StreamFollower
from elanus.nats.source import NatsSource

pytestmark = pytest.mark.services

CHANNEL = "dml_0"
TIMEOUT_S = 40


@pytest.fixture
def own_server(tmp_path: Path) -> Iterator[Nats]:
    """A server for one test, which may kill it."""
    server = Nats(tmp_path)
    server.start()
    yield server
    server.kill()


@pytest.fixture
def source(nats_server: Nats) -> NatsSource:
    return NatsSource((nats_server.url,), prefix=f"faults-{uuid.uuid4().hex}")


def run(work: Awaitable[None]) -> None:
    async def bounded() -> None:
        await asyncio.wait_for(work, TIMEOUT_S)

    asyncio.run(bounded())


def entry(number: int, payload: bytes = b"", writer: str = "") -> NewEntry:
    return NewEntry(EntryHeader(MsgKind.INSERT, Timestamp(number), writer, rows=1), [payload])


async def read_until(log: Log, count: int, *, headers_only: bool = False) -> list[LogEntry]:
    reader = log.open_reader(CHANNEL, START, headers_only=headers_only)
    found: list[LogEntry] = []
    while len(found) < count:
        found += await reader.read()
    reader.close()
    return found


def stamps(entries: list[LogEntry]) -> list[int]:
    return [e.header.ts for e in entries]


def test_nothing_acknowledged_is_lost_or_doubled_when_the_server_is_killed(own_server: Nats) -> None:
    """Four writers of two processes' logs, a reader all along, and three kills under them."""
    acknowledged: dict[tuple[str, int], Position] = {}
    seen: list[LogEntry] = []
    chance = random.Random(1)

    async def write(log: NatsLog, writer: str) -> None:
        for number in range(1, 120):
            payload = chance.randbytes(chance.choice((10, 5_000, 3_000_000 if number % 40 == 0 else 100)))
            entries = [entry(number, payload, writer), entry(number, b"second", writer)]
            positions = await log.append(CHANNEL, entries)
            acknowledged[writer, number] = positions[0]
            await asyncio.sleep(0.005)

    async def follow(log: NatsLog) -> None:
        reader = log.open_reader(CHANNEL, START)
        while True:
            seen.extend(await reader.read())

    async def work() -> None:
        logs = [await NatsLog.open(NatsSource((own_server.url,))) for _ in range(2)]
        following = asyncio.create_task(follow(logs[0]))
        writing = asyncio.gather(*(write(log, f"{n}{m}") for n, log in enumerate(logs) for m in range(2)))
        for kill in range(1, 4):
            while len(acknowledged) < kill * 100:  # noqa: ASYNC110 - what other tasks count up
                await asyncio.sleep(0.001)
            own_server.kill()

            own_server.launch()
            await asyncio.to_thread(own_server.wait_ready)
        await writing
        end = await logs[0].sync(CHANNEL)
        while not seen or seen[-1].next < end:
            await asyncio.sleep(0.001)
            assert not following.done()
        for log in logs:
            await log.close()
        await asyncio.gather(following, return_exceptions=True)

    run(work())
    firsts = {(e.header.vchannel, int(e.header.ts)): e.position for e in seen if e.payload != b"second"}
    assert firsts == acknowledged
    assert len(seen) == 2 * len(acknowledged)
    for writer in ("00", "01", "10", "11"):
        own = [e.header.ts for e in seen if e.header.vchannel == writer]
        assert own == sorted(own)


def test_an_append_whose_answer_is_lost_is_there_once(
    source: NatsSource, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Every third answer is dropped after the server has stored the append."""
    answers = 0
    ask = NatsConnection.request

    async def forgetful(self: NatsConnection, subject: str, *rest: object) -> Msg:
        nonlocal answers
        answer = await ask(self, subject, *rest)  # type: ignore[arg-type]
        answers += not subject.startswith("$JS")
        if answers % 3 == 1 and not subject.startswith("$JS"):
            raise Interrupted("the answer was lost")
        return answer

    async def work() -> None:
        log = await NatsLog.open(source)
        monkeypatch.setattr(NatsConnection, "request", forgetful)
        positions: list[Position] = []
        for number in range(0, 60, 4):
            batch = [log.append(CHANNEL, [entry(number + n), entry(number + n)]) for n in range(4)]
            positions += [p for appended in await asyncio.gather(*batch) for p in appended]
        found = await read_until(log, 120)
        assert stamps(found) == sorted([*range(60), *range(60)])
        assert [e.position for e in found] == positions
        await log.close()

    run(work())


def test_an_append_that_never_reached_the_server_goes_out_again(
    source: NatsSource, monkeypatch: pytest.MonkeyPatch
) -> None:
    lost = 0
    ask = NatsConnection.request

    async def forgetful(self: NatsConnection, subject: str, *rest: object) -> Msg:
        nonlocal lost
        if not subject.startswith("$JS") and lost < 3:
            lost += 1
            raise Interrupted("nothing was sent")
        return await ask(self, subject, *rest)  # type: ignore[arg-type]

    async def work() -> None:
        log = await NatsLog.open(source)
        monkeypatch.setattr(NatsConnection, "request", forgetful)
        for number in range(5):
            await log.append(CHANNEL, [entry(number), entry(number)])
        assert stamps(await read_until(log, 10)) == [0, 0, 1, 1, 2, 2, 3, 3, 4, 4]
        assert lost == 3
        await log.close()

    run(work())


def test_large_entries_are_whole_among_those_of_other_writers(source: NatsSource) -> None:
    payloads = [random.Random(n).randbytes(2_500_000 + n) for n in range(4)]

    async def work() -> None:
        logs = [await NatsLog.open(source) for _ in range(2)]
        large = [logs[0].append(CHANNEL, [entry(n, payloads[n])]) for n in range(4)]
        small = [logs[1].append(CHANNEL, [entry(100 + n, b"small")]) for n in range(50)]
        positions = [p for (p,) in await asyncio.gather(*large)]
        await asyncio.gather(*small)
        found = await read_until(logs[1], 54)
        whole = [e for e in found if e.payload_bytes > 100]
        assert [bytes(e.payload or b"") for e in whole] == payloads
        assert [e.position for e in whole] == positions
        headers = await read_until(logs[1], 54, headers_only=True)
        assert [(e.position, e.next, e.payload_bytes) for e in headers] == [
            (e.position, e.next, e.payload_bytes) for e in found
        ]
        inside = Position(positions[0] + 1)
        end = await logs[1].sync(CHANNEL)
        again = await asyncio.to_thread(lambda: list(read_range(source, CHANNEL, inside, end)))
        assert [e.position for e in again] == [e.position for e in found if e.position > positions[0]]
        cut = await asyncio.to_thread(lambda: list(read_range(source, CHANNEL, START, inside)))
        assert cut[-1].position == positions[0]
        assert bytes(cut[-1].payload or b"") == payloads[0]
        for log in logs:
            await log.close()

    run(work())


def test_a_writer_goes_on_after_all_of_its_entries_are_trimmed(source: NatsSource) -> None:
    async def work() -> None:
        log = await NatsLog.open(source)
        found: list[Position] = []
        for number in range(5):
            found += await log.append(CHANNEL, [entry(number), entry(number)])
            await log.trim(CHANNEL, await log.sync(CHANNEL))
        found += await log.append(CHANNEL, [entry(9)])
        assert found == list(range(found[0], found[0] + 11))
        await log.close()

    run(work())


def test_an_append_fails_in_time_when_the_server_stays_away(own_server: Nats) -> None:
    async def work() -> None:
        log = await NatsLog.open(NatsSource((own_server.url,)), append_timeout_s=0.5)
        (first,) = await log.append(CHANNEL, [entry(1)])
        own_server.kill()
        with pytest.raises(Unavailable, match=r"not acknowledge .* within 0\.5 s"):
            await log.append(CHANNEL, [entry(2)])
        own_server.launch()
        await asyncio.to_thread(own_server.wait_ready)
        while True:
            try:
                await log.append(CHANNEL, [entry(3)])
                break
            except Unavailable:  # it may need more than half a second to connect again
                continue
        # the one that failed may have arrived all the same, in its place
        found = stamps(await read_until(log, await log.sync(CHANNEL) - first))
        assert found in ([1, 3], [1, 2, 3])
        await log.close()

    run(work())


def test_a_paused_server_delays_appends_and_doubles_none(own_server: Nats) -> None:
    async def work() -> None:
        log = await NatsLog.open(NatsSource((own_server.url,)))
        (first,) = await log.append(CHANNEL, [entry(1)])
        own_server.pause()
        appending = asyncio.gather(*(log.append(CHANNEL, [entry(n)]) for n in range(2, 6)))
        done, _ = await asyncio.wait((appending,), timeout=5.5)
        assert not done
        own_server.resume()
        await appending
        assert stamps(await read_until(log, 5)) == [1, 2, 3, 4, 5]
        assert await log.sync(CHANNEL) == first + 5
        await log.close()

    run(work())


def test_a_full_store_is_a_full_disk_and_leaves_nothing(tmp_path: Path) -> None:
    async def work() -> None:
        log = await NatsLog.open(NatsSource((server.url,)))
        (first,) = await log.append(CHANNEL, [entry(1)])
        appends = [
            log.append(CHANNEL, [entry(number, bytes(900_000)) for _ in range(3)]) for number in range(2, 20)
        ]
        outcomes = await asyncio.gather(*appends, return_exceptions=True)
        full = [outcome for outcome in outcomes if isinstance(outcome, DiskFull)]
        assert full
        assert all("give JetStream more storage" in error.message for error in full)
        end = await log.sync(CHANNEL)
        found = await read_until(log, end - first)
        assert stamps(found)[1:] == [n for n in range(2, 2 + len(found) // 3) for _ in range(3)]
        await log.trim(CHANNEL, end)
        await log.append(CHANNEL, [entry(30)])
        await log.close()

    server = Nats(tmp_path, store_max_mb=10)
    server.start()
    try:
        run(work())
    finally:
        server.kill()


def test_what_no_log_wrote_is_corrupt(source: NatsSource) -> None:
    async def work() -> None:
        log = await NatsLog.open(source)
        await log.append(CHANNEL, [entry(1)])
        connection = await NatsConnection.open(source, "stranger")
        await connection.request(f"{source.prefix}-{CHANNEL}.stranger", b"hello", None)
        await connection.close()
        reader = log.open_reader(CHANNEL, START)
        assert stamps(list(await reader.read())) == [1]
        with pytest.raises(CorruptLog, match=f"message {log.end(CHANNEL)}"):
            await reader.read()
        await log.close()

    run(work())


def test_a_message_that_a_consumer_leaves_out_is_lost_only_if_the_stream_lacks_it(
    source: NatsSource, monkeypatch: pytest.MonkeyPatch
) -> None:
    arrivals, second = Counter[int](), [0]

    def arrived(follower: StreamFollower, message: Msg) -> None:
        sequence = message.metadata.sequence.stream
        arrivals[sequence] += 1
        if sequence != second[0] or arrivals[sequence] > 2:  # twice it does not come
            original(follower, message)

    original = StreamFollower._arrived
    monkeypatch.setattr(StreamFollower, "_arrived", arrived)

    async def work() -> None:
        log = await NatsLog.open(source)
        _, second[0], _ = await log.append(CHANNEL, [entry(1), entry(2), entry(3)])
        assert stamps(await read_until(log, 3)) == [1, 2, 3]
        await as_operator(source, "MSG.DELETE", {"seq": second[0]})
        reader = log.open_reader(CHANNEL, START)
        assert stamps(list(await reader.read())) == [1]
        with pytest.raises(CorruptLog, match=f"message {second[0]} is missing"):
            await reader.read()
        await log.close()

    run(work())


def test_a_range_beyond_the_end_is_an_error(source: NatsSource) -> None:
    async def work() -> None:
        log = await NatsLog.open(source)
        await log.append(CHANNEL, [entry(1)])
        beyond = Position(log.end(CHANNEL) + 3)
        with pytest.raises(CorruptLog, match=f"before position {beyond}"):
            await asyncio.to_thread(lambda: list(read_range(source, CHANNEL, START, beyond)))
        with pytest.raises(Unavailable, match="cannot be read"):
            await asyncio.to_thread(lambda: list(read_range(source, "nothing", START, Position(5))))
        await log.close()

    run(work())


async def as_operator(source: NatsSource, verb: str, request: dict[str, int]) -> None:
    """Do something to the channel's stream that no log does."""
    connection = await NatsConnection.open(source, "operator")
    await connection.api(f"STREAM.{verb}.{source.prefix}-{CHANNEL}", request)
    await connection.close()


def test_a_stream_that_was_lost_is_not_taken_for_the_one_that_follows_it(source: NatsSource) -> None:
    async def work() -> None:
        log = await NatsLog.open(source)
        positions = await log.append(CHANNEL, [entry(1), entry(2), entry(3)])
        await as_operator(source, "DELETE", {})
        lost = f"position {positions[1]} is trimmed; the log begins at "
        with pytest.raises(TrimmedLog, match=lost):  # the reader creates the stream
            await log.open_reader(CHANNEL, positions[1]).read()
        (after,) = await log.append(CHANNEL, [entry(4)])
        assert after > positions[2]
        with pytest.raises(TrimmedLog, match=f"{lost}{after}"):
            await log.open_reader(CHANNEL, positions[1]).read()
        assert stamps(await read_until(log, 1)) == [4]
        await log.close()

    run(work())


def test_a_stream_of_an_earlier_release_goes_on(source: NatsSource) -> None:
    """Its first message has the sequence 1."""

    async def work() -> None:
        config = {"name": f"{source.prefix}-{CHANNEL}", "subjects": [f"{source.prefix}-{CHANNEL}.*"],
                  "storage": "file", "discard": "new", "num_replicas": 1, "allow_atomic": True}  # fmt: skip
        connection = await NatsConnection.open(source, "earlier")
        await connection.api(f"STREAM.CREATE.{config['name']}", config)
        await connection.close()
        log = await NatsLog.open(source)
        assert list(log.pchannels()) == []
        assert list(await log.append(CHANNEL, [entry(1), entry(2)])) == [1, 2]
        assert stamps(await read_until(log, 2)) == [1, 2]
        await log.trim(CHANNEL, Position(2))
        with pytest.raises(TrimmedLog, match="position 1 is trimmed; the log begins at 2"):
            await log.open_reader(CHANNEL, START).read()
        await log.close()

    run(work())


def test_credentials_come_from_a_file(tmp_path: Path) -> None:
    def at(credentials: Path | None) -> NatsSource:
        return NatsSource((server.url,), credentials=credentials)

    async def work() -> None:
        log = await NatsLog.open(at(right))
        await log.append(CHANNEL, [entry(1)])
        await log.close()
        for credentials, text in ((wrong, "refuses the credentials of .*wrong"), (None, "without any")):
            with pytest.raises(InvalidParameter, match=text) as refusal:
                await NatsLog.open(at(credentials))
            assert "guess" not in str(refusal.value)

    right, wrong = tmp_path / "right", tmp_path / "wrong"
    right.write_text("elanus:open sesame\n")
    wrong.write_text("elanus:guess\n")
    server = Nats(tmp_path, password="open sesame")
    server.start()
    try:
        run(work())
    finally:
        server.kill()


def test_a_server_that_is_not_there_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("elanus.nats.connection._CONNECT_TIMEOUT_S", 0.3)

    async def work() -> None:
        with pytest.raises(Unavailable, match=r"no NATS server answers at nats://127\.0\.0\.1:9"):
            await NatsLog.open(NatsSource(("nats://127.0.0.1:9",)))

    run(work())
