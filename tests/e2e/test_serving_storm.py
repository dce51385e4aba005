"""The serving loop in a storm: every right answer arrives, and the process ends as it should."""

from __future__ import annotations

import pytest
from serving_storm import Storm, StormyServer, is_right_after

pytestmark = pytest.mark.e2e

SECONDS = 4.0
CROWD = 2000
THREADS_MAX = 60
"""Workers, spare leaders and the threads of the library."""


def test_a_storm_harms_no_other_call_and_not_the_process() -> None:
    server = StormyServer("loop")
    try:
        storm = Storm(server.port, SECONDS, seed=7, crowd=CROWD)
        storm.rage()
        assert not storm.wrong, storm.wrong[:10]
        assert min(storm.done[kind] for kind in ("checked", "given up", "too late", "garbage")) >= 20
        assert min(storm.done[kind] for kind in ("killed", "streams")) >= 1
        assert storm.done["connections"] >= CROWD
        assert is_right_after(server.port)
        assert server.usage.num_threads() < THREADS_MAX
        assert server.stop() == 0
    finally:
        server.kill()
