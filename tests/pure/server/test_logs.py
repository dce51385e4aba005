"""One format and one level for all messages, whichever library they come from."""

from __future__ import annotations

import io
import json
import logging
import warnings
from collections.abc import Iterator

import pytest
import structlog

from elanus.rpc.tracing import end_trace, set_trace
from elanus.server.logs import configure_logging
from elanus.server.settings import LoggingSettings


@pytest.fixture
def stream() -> Iterator[io.StringIO]:
    """A place for messages. The configuration is undone afterwards: it belongs to the whole process."""
    root = logging.getLogger()
    handlers, level = root.handlers, root.level
    yield io.StringIO()
    logging.captureWarnings(False)
    root.handlers, root.level = handlers, level
    structlog.reset_defaults()


def lines(stream: io.StringIO) -> list[dict[str, object]]:
    return [json.loads(line) for line in stream.getvalue().splitlines()]


def test_a_message_is_one_json_object_with_what_the_call_added(stream: io.StringIO) -> None:
    configure_logging(LoggingSettings(), "online", stream)
    structlog.get_logger("elanus.test").warning("segment_sealed", segment_id=7)
    (line,) = lines(stream)
    assert line.pop("timestamp")
    assert line == {
        "event": "segment_sealed",
        "segment_id": 7,
        "level": "warning",
        "logger": "elanus.test",
        "process": "online",
    }


def test_what_happens_for_a_request_carries_its_trace(stream: io.StringIO) -> None:
    configure_logging(LoggingSettings(), "online", stream)
    trace = set_trace("4bf92f3577b34da6a3ce929d0e0e4736")
    try:
        structlog.get_logger("trace.ours").error("ours")
        logging.getLogger("trace.theirs").error("theirs")
    finally:
        end_trace(trace)
    structlog.get_logger("trace.ours").error("after")
    traces = [line.get("trace_id") for line in lines(stream)]
    assert traces == ["4bf92f3577b34da6a3ce929d0e0e4736", "4bf92f3577b34da6a3ce929d0e0e4736", None]


def test_messages_below_the_level_are_not_shown(stream: io.StringIO) -> None:
    configure_logging(LoggingSettings(), "online", stream)
    structlog.get_logger("elanus.test").info("quiet")
    logging.getLogger("grpc").info("quiet")
    assert lines(stream) == []


def test_the_standard_librarys_messages_look_the_same(stream: io.StringIO) -> None:
    configure_logging(LoggingSettings(level="info"), "pipeline", stream)
    logging.getLogger("some.library").info("connected to %s", "jvm", extra={"port": 1})
    (line,) = lines(stream)
    assert (line["event"], line["logger"], line["process"]) == (
        "connected to jvm",
        "some.library",
        "pipeline",
    )
    assert line["port"] == 1


def test_warnings_are_messages(stream: io.StringIO) -> None:
    configure_logging(LoggingSettings(), "online", stream)
    with warnings.catch_warnings():
        warnings.simplefilter("always")
        # catch_warnings has put the plain display back; capturing again is what a server's start does
        logging.captureWarnings(False)
        logging.captureWarnings(True)
        warnings.warn("mind the gap", stacklevel=1)
    (line,) = lines(stream)
    assert "mind the gap" in str(line["event"])


def test_an_exception_carries_its_traceback(stream: io.StringIO) -> None:
    configure_logging(LoggingSettings(), "online", stream)
    try:
        raise ValueError("broken")
    except ValueError:
        structlog.get_logger("elanus.test").exception("failed")
    (line,) = lines(stream)
    assert "ValueError: broken" in str(line["exception"])


def test_a_person_gets_lines(stream: io.StringIO) -> None:
    configure_logging(LoggingSettings(format="console"), "online", stream)
    structlog.get_logger("elanus.test").warning("segment_sealed", segment_id=7)
    assert "segment_sealed" in stream.getvalue()
    assert not stream.getvalue().startswith("{")
