"""Sockets of a server whose data directory has a long path are elsewhere, in one directory, while it runs."""

from __future__ import annotations

from pathlib import Path

import pytest

from elanus.core.errors import Unavailable
from elanus.server.data_dir import DataDir
from elanus.server.fronts import check_free, check_known
from elanus.server.startup import CannotStart


def _path(address: str) -> Path:
    return Path(address.removeprefix("unix:"))


def test_sockets_with_short_paths_are_in_the_data_directory(tmp_path: Path) -> None:
    data_dir = DataDir(tmp_path / "d")
    assert _path(data_dir.socket("front")).parent == tmp_path / "d" / "run"
    data_dir.close()


def test_sockets_with_long_paths_share_a_directory_that_is_removed_at_the_end(tmp_path: Path) -> None:
    data_dir = DataDir(tmp_path / ("d" * 120))
    places = {_path(data_dir.socket(name)).parent for name in ("front", "serving-2", "serving-2")}
    (place,) = places
    assert place.is_dir()
    assert data_dir.root not in place.parents
    data_dir.close()
    assert not place.exists()


def test_a_host_that_is_not_known_cannot_be_listened_on() -> None:
    with pytest.raises(Unavailable, match=r"cannot listen on no\.such\.host\.invalid:19530: "):
        check_free("no.such.host.invalid", 19530)
    with pytest.raises(CannotStart, match=r"no\.such\.host\.invalid: the host name is unknown .*--host"):
        check_known("no.such.host.invalid")
    for host in ("127.0.0.1", "0.0.0.0", "::1", "localhost", ""):
        check_known(host)
