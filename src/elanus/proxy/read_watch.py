"""Which reads are followed, and who gets their explanations: the client that asked, and the slow log.

A client asks for one read at a time. The slow log keeps requests that took longer than a limit. Nobody knows
beforehand which these are, and to follow all reads would cost each of them some percent. So reads are
followed for a minute after one was slow: the first is kept without an explanation, those after it with one.
"""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Callable, Mapping
from functools import lru_cache
from typing import Any

import structlog

from elanus.core.explanation import Explanation, text_of
from elanus.core.names import recorded_name
from elanus.core.slow_requests import SlowRequest
from elanus.core.timestamps import physical_ms
from elanus.core.trail import Trail
from elanus.proxy.access.caller import FinishedCall

FOLLOWED = frozenset(
    {"Search", "HybridSearch", "Query", "Rest.Search", "Rest.HybridSearch", "Rest.Query", "Rest.Get"}
)
"""The operations that are reads."""
SLOW_KEPT = 100
"""Requests in the slow log."""
FOLLOW_S = 60.0
"""How long reads are followed after a slow one."""
_LINES_EVERY_S = 1.0
_log = structlog.get_logger("proxy")


class ReadWatch:
    """Decides which reads are followed, and keeps the slow ones. Safe for any thread.

    ``slow_ms``: reads that take longer are kept, the last `SLOW_KEPT` of them; 0: none, and reads are
    followed only if their clients ask. ``now_s``: the clock by which callers count, too. ``process``: see
    `elanus.core.slow_requests.SlowRequest`.
    """

    def __init__(
        self,
        slow_ms: float = 0,
        *,
        now_s: Callable[[], float] = time.perf_counter,
        cpu_s: Callable[[], float] = time.thread_time,
        wall_s: Callable[[], float] = time.time,
        process: int = 1,
    ) -> None:
        self._slow_ms = slow_ms
        self._process = process
        self.now_s = now_s
        self._cpu_s = cpu_s
        self._wall_s = wall_s
        self._slow: deque[SlowRequest] = deque(maxlen=SLOW_KEPT)
        self._line_s = float("-inf")
        self._unsaid = 0
        self._follow_until_s = float("-inf")
        self.slow_count = 0
        """How many requests were slow."""

    def slow_requests(self) -> list[SlowRequest]:
        """Return the slow log, oldest first."""
        return list(self._slow)

    def begin(self, name: str, explain: list[Explanation] | None, now_s: float) -> Trail | None:
        """Return the trail of a request that is to be followed; None for the others."""
        if (explain is None and now_s >= self._follow_until_s) or name not in FOLLOWED:
            return None
        trail = Trail(self.now_s, None if explain is None else self._cpu_s)
        trail.step("check and decode the request")
        return trail

    def end(self, trail: Trail | None, call: FinishedCall) -> None:
        """The request is answered. ``trail``: what `begin` returned for it."""
        ms = 1000 * call.seconds
        is_slow = 0 < self._slow_ms < ms and call.operation in FOLLOWED
        if trail is None:
            if is_slow:
                self._keep(self._slow_request(call, ms, ""), "")
            return
        trail.step("")
        explain = call.caller.explain
        if explain is None and not is_slow:
            return
        try:
            explanation = explained(call.operation, trail)
        except Exception:  # noqa: BLE001 - a defect: logged in full
            _log.exception("read not explained", request=call.operation)  # the read itself has succeeded
            return
        if explain is not None:
            explain.append(explanation)
        if is_slow:
            longest = max(explanation.steps, key=lambda step: step.ms, default=None)
            slow = self._slow_request(call, ms, text_of(explanation))
            self._keep(slow, "" if longest is None else longest.name)

    def _slow_request(self, call: FinishedCall, ms: float, text: str) -> SlowRequest:
        return SlowRequest(
            round(self._wall_s() * 1000),
            call.operation,
            recorded_name(call.database),
            ",".join(map(recorded_name, call.objects)),
            ms,
            call.code,
            call.trace,
            text,
            self._process,
        )

    def _keep(self, slow: SlowRequest, longest_step: str) -> None:
        self._follow_until_s = self.now_s() + FOLLOW_S
        self.slow_count += 1
        self._slow.append(slow)
        self._say(slow, longest_step)

    def _say(self, slow: SlowRequest, longest_step: str) -> None:
        """Log the request, unless another was logged a moment ago: they may come in floods."""
        now_s = self.now_s()
        if now_s - self._line_s < _LINES_EVERY_S:
            self._unsaid += 1
            return
        unsaid, self._unsaid, self._line_s = self._unsaid, 0, now_s
        _log.warning(
            "request slow",
            request=slow.request,
            database=slow.database,
            collection=slow.collection,
            ms=round(slow.ms, 1),
            longest_step=longest_step,
            code=slow.code,
            request_trace=slow.trace,
            not_logged=unsaid,
        )


def explained(name: str, trail: Trail) -> Explanation:
    """Return the explanation of a read that has ended."""
    return Explanation(
        request=name.removeprefix("Rest."),
        facts=_facts(trail.facts),
        ms=1000 * trail.seconds,
        cpu_ms=trail.cpu_ms(trail.cpu_seconds),
        waited_ms=1000 * float(trail.facts.get("waited_s", 0.0)),
        steps=trail.steps(),
        nodes=(*(make() for make in trail.reports), *trail.received),
    )


def _facts(noted: Mapping[str, Any]) -> dict[str, str]:
    """Return what the verbs noted (`elanus.proxy.verbs.noting`), in words."""
    facts: dict[str, str] = {}
    if "collection" in noted:
        view = noted["collection"].view
        facts["collection"] = f"{view.database}.{view.name}"
    if "read_ts" in noted:
        level = noted["consistency"].level
        asked = "pinned by the client" if noted["consistency"].moment is not None else ""
        if level is None:
            level = noted["collection"].view.consistency_level
        asked = asked or level.name.capitalize()
        moment = _moment(physical_ms(noted["read_ts"]) // 1000)
        facts["as of"] = f"timestamp {noted['read_ts']} ({moment} UTC), consistency: {asked}"
    if "filter" in noted and not noted["filter"].matches_all:
        facts["filter"] = noted["filter"].explain()
    for key in ("asked", "answer"):
        if key in noted:
            text, *counts = noted[key]
            facts[key] = text.format(*counts)
    return facts


@lru_cache(maxsize=16)
def _moment(second: int) -> str:
    """Return a second since 1970 as date and time of day, UTC. Reads of the same second share it."""
    return time.strftime("%Y-%m-%d %H:%M:%S", time.gmtime(second))
