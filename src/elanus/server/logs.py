"""The server's own messages: structured, on standard error, quiet unless something is wrong.

Both structlog's loggers and those of the standard library (grpc, py4j, warnings) use one
handler, so a process has one format and one level. The text format has a colored line per message,
the JSON format one object per line: timestamp (UTC, ISO 8601), level, logger, event, the name of the
process, its trace if there is one (`elanus.rpc.tracing`), and the fields that the call added.
"""

from __future__ import annotations

import logging
import sys
from collections.abc import MutableMapping
from dataclasses import dataclass
from typing import Any, Literal, Protocol, TextIO

import structlog
from structlog.types import Processor

from elanus.rpc.tracing import add_trace


class LogSettings(Protocol):
    """The part of `elanus.server.settings.LoggingSettings` that a process needs."""

    @property
    def level(self) -> Literal["debug", "info", "warning", "error"]: ...

    @property
    def format(self) -> Literal["auto", "console", "json"]: ...


@dataclass(frozen=True, slots=True)
class LogForm:
    """Implements `LogSettings` for a process that does not load the settings."""

    level: Literal["debug", "info", "warning", "error"]
    format: Literal["auto", "console", "json"]


def configure_logging(settings: LogSettings, process: str, stream: TextIO | None = None) -> None:
    """Send all messages of this process to ``stream`` (standard error unless given).

    ``process`` names the process in each message, for example ``online`` or ``pipeline``. Replaces any
    earlier configuration, for the whole process.
    """
    stream = stream or sys.stderr
    level = logging.getLevelNamesMapping()[settings.level.upper()]
    shared: list[Processor] = [
        structlog.stdlib.add_log_level,
        structlog.stdlib.add_logger_name,
        structlog.stdlib.PositionalArgumentsFormatter(),
        structlog.stdlib.ExtraAdder(),
        structlog.processors.TimeStamper(fmt="iso", utc=True),
        add_trace,
        _add_process(process),
    ]
    structlog.configure(
        processors=[
            structlog.stdlib.filter_by_level,
            structlog.contextvars.merge_contextvars,
            *shared,
            structlog.stdlib.ProcessorFormatter.wrap_for_formatter,
        ],
        logger_factory=structlog.stdlib.LoggerFactory(),
        wrapper_class=structlog.stdlib.BoundLogger,
        cache_logger_on_first_use=True,
    )
    handler = logging.StreamHandler(stream)
    handler.setFormatter(
        structlog.stdlib.ProcessorFormatter(
            foreign_pre_chain=shared,
            processors=[
                structlog.stdlib.ProcessorFormatter.remove_processors_meta,
                *_renderers(as_json=_wants_json(settings, stream)),
            ],
        )
    )
    root = logging.getLogger()
    root.handlers = [handler]
    root.setLevel(level)
    logging.captureWarnings(True)


def _wants_json(settings: LogSettings, stream: TextIO) -> bool:
    return settings.format == "json" or (settings.format == "auto" and not stream.isatty())


def _renderers(*, as_json: bool) -> list[Processor]:
    if as_json:
        # default=str: a value that JSON cannot represent (a path, an error) must not lose the message
        return [structlog.processors.format_exc_info, structlog.processors.JSONRenderer(default=str)]
    return [structlog.dev.ConsoleRenderer(exception_formatter=structlog.dev.plain_traceback)]


def _add_process(name: str) -> Processor:
    def add(_logger: Any, _method: str, event: MutableMapping[str, Any]) -> MutableMapping[str, Any]:
        event["process"] = name
        return event

    return add
