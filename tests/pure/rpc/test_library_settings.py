"""The gRPC library's settings: ours where the owner of the environment has decided nothing."""

from __future__ import annotations

import pytest

from elanus.rpc.library_settings import library_settings

FORK, EXPERIMENTS = "GRPC_ENABLE_FORK_SUPPORT", "GRPC_EXPERIMENTS"


def test_sockets_are_polled_by_the_reader_of_the_queue_and_there_are_no_fork_handlers() -> None:
    assert library_settings({"PATH": "/bin"}) == {FORK: "0", EXPERIMENTS: "-event_engine_listener"}


@pytest.mark.parametrize("decided", ["event_engine_listener", "-event_engine_listener"])
def test_what_the_owner_has_decided_stays(decided: str) -> None:
    assert library_settings({FORK: "1", EXPERIMENTS: f"tcp_rcv_lowat,{decided}"}) == {}


def test_other_experiments_stay() -> None:
    found = library_settings({FORK: "0", EXPERIMENTS: "tcp_rcv_lowat"})
    assert found == {EXPERIMENTS: "tcp_rcv_lowat,-event_engine_listener"}


def test_settings_that_were_made_are_not_made_again() -> None:
    assert library_settings(library_settings({})) == {}
