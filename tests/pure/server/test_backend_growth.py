"""A backend of each port is added with its functions and one line in the table of the port."""

from __future__ import annotations

import subprocess
import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from pydantic import ValidationError

from elanus.channels.backends import BACKENDS as CHANNELS
from elanus.channels.memory import MemoryChannels
from elanus.channels.port import ChannelsBackend
from elanus.core.backends import Backends, identity_of_path
from elanus.core.errors import InvalidParameter
from elanus.core.messages import MsgKind
from elanus.core.timestamps import Timestamp
from elanus.log.backends import BACKENDS as LOGS
from elanus.log.backends import range_reader
from elanus.log.memory import MemoryLog
from elanus.log.port import START, EntryHeader, LogBackend, LogOptions, NewEntry
from elanus.meta.backends import BACKENDS as METAS
from elanus.meta.memory import MemoryMeta
from elanus.meta.port import MetaBackend
from elanus.server.backends import bind, open_channels, open_follower, open_log, open_meta, open_objects
from elanus.server.cluster.run import check
from elanus.server.data_dir import paths_of
from elanus.server.settings import Settings
from elanus.server.settings_services import ChannelsSettings, LogSettings, MetaSettings, StorageSettings
from elanus.server.startup import CannotStart
from elanus.storage.backends import BACKENDS as STORES
from elanus.storage.local import LocalStore
from elanus.storage.objects import open_store
from elanus.storage.port import StorageBackend

URL = "toy://host:1/mine"
FORM = "toy://host:port/prefix"
PORTS: list[tuple[Backends[Any], Any]] = [
    (LOGS, LogSettings),
    (CHANNELS, ChannelsSettings),
    (METAS, MetaSettings),
    (STORES, StorageSettings),
]


class ToyChannels(MemoryChannels):
    async def close(self) -> None:
        pass


class Toys:
    """One backend per port, in memory or in a directory."""

    def __init__(self, directory: Path) -> None:
        self.logs = MemoryLog()
        self.options: list[LogOptions] = []
        self.cleaned: list[tuple[str, float]] = []
        self._directory = directory
        self.log = LogBackend(
            form=FORM,
            check=self._check,
            identity=identity_of_path,
            open=self._open_log,
            follow=self._follow,
            range_reader=lambda _url: self.logs.read_range,
        )
        self.channels = ChannelsBackend(form=FORM, check=self._check, open=self._open_channels)
        self.meta = MetaBackend(form=FORM, check=self._check, open=lambda _url, _owner: MemoryMeta())
        self.store = StorageBackend(
            form=FORM,
            check=self._check,
            identity=identity_of_path,
            open=lambda _url: LocalStore(self._directory),
            clean=lambda url, unused_for_s: self.cleaned.append((url, unused_for_s)),
        )

    @staticmethod
    def _check(url: str) -> None:
        if not url.startswith("toy://host"):
            raise InvalidParameter(f"{url!r}: expected {FORM}")

    async def _open_log(self, _url: str, options: LogOptions) -> MemoryLog:
        self.options.append(options)
        return self.logs

    async def _follow(self, _url: str, _poll_ms: float) -> MemoryLog:
        return self.logs

    async def _open_channels(self, _url: str) -> ToyChannels:
        return ToyChannels()


@pytest.fixture
def toys(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Toys:
    made = Toys(tmp_path / "objects")
    by_port = ((LOGS, made.log), (CHANNELS, made.channels), (METAS, made.meta), (STORES, made.store))
    for backends, toy in by_port:
        monkeypatch.setitem(backends.by_scheme, "toy", toy)
    return made


def all_toys() -> Settings:
    return Settings(
        meta=MetaSettings(url=URL), log=LogSettings(url=URL, fsync=False), storage=StorageSettings(url=URL)
    )


@pytest.mark.parametrize(("backends", "section"), PORTS, ids=lambda value: getattr(value, "port", ""))
def test_an_unknown_scheme_is_refused_with_the_known_ones(backends: Backends[Any], section: Any) -> None:
    with pytest.raises(ValidationError) as refusal:
        section(url="toy://me:secret@host/mine")
    (error,) = refusal.value.errors()
    assert backends.setting in error["msg"]
    assert "'toy://host/mine'" in error["msg"], "without the password"
    for scheme in backends.by_scheme:
        assert scheme in error["msg"]
    with pytest.raises(InvalidParameter, match=f"setting {backends.setting} takes"):
        backends.of(URL)


@pytest.mark.usefixtures("toys")
@pytest.mark.parametrize(("backends", "section"), PORTS, ids=lambda value: getattr(value, "port", ""))
def test_a_setting_takes_the_scheme_and_has_its_backend_check_the_rest(
    backends: Backends[Any], section: Any
) -> None:
    assert section(url=URL).url == URL
    with pytest.raises(ValidationError, match=FORM):
        section(url="toy://elsewhere")
    with pytest.raises(InvalidParameter, match=r"takes .*toy"):
        backends.of("kafka://host")


async def test_the_log_is_opened_followed_and_read_in_ranges(toys: Toys, tmp_path: Path) -> None:
    log = await open_log(all_toys(), paths_of(tmp_path))
    assert toys.options[0].fsync is False
    await log.append("dml_0", [NewEntry(EntryHeader(MsgKind.TIME_TICK, Timestamp(7)))])
    follower = await open_follower(all_toys(), paths_of(tmp_path), poll_ms=1)
    (entry,) = await follower.open_reader("dml_0", START).read()
    assert entry.header.ts == 7
    (read,) = range_reader(URL)("dml_0", START, log.end("dml_0"))
    assert read.header.ts == 7, "what a Spark task reads"


@pytest.mark.usefixtures("toys")
async def test_query_channels_are_where_the_log_is_or_where_their_own_setting_says() -> None:
    for settings in (all_toys(), Settings(channels=ChannelsSettings(url=URL))):
        channels = await open_channels(settings)
        await channels.create("query")
        assert await channels.publish("query", b"one") == 1


@pytest.mark.usefixtures("toys")
async def test_metadata_is_opened() -> None:
    meta = open_meta(all_toys(), "owner")
    assert await meta.get("key") is None


def test_objects_are_opened_and_cleaned(toys: Toys, tmp_path: Path) -> None:
    open_objects(all_toys(), paths_of(tmp_path)).put("one", b"x")
    open_objects(all_toys(), paths_of(tmp_path), shared=True)
    (alone, shared) = toys.cleaned
    assert alone == (URL, 0.0)
    assert shared[1] > 60, "others may be writing"
    assert open_store(URL).get("one").to_pybytes() == b"x", "what a Spark task reads"


@pytest.mark.usefixtures("toys")
def test_a_data_directory_is_bound_to_it(tmp_path: Path) -> None:
    bind(all_toys(), paths_of(tmp_path))
    bind(
        Settings(log=LogSettings(url="toy://host:2/mine"), storage=StorageSettings(url=URL)),
        paths_of(tmp_path),
    )
    with pytest.raises(CannotStart, match=r"log\.url names toy:/other"):
        bind(Settings(log=LogSettings(url="toy://host/other")), paths_of(tmp_path))


@pytest.mark.usefixtures("toys")
def test_a_cluster_runs_on_it() -> None:
    check(all_toys(), ("proxy",))


def test_a_cluster_needs_channels_that_its_log_does_not_carry(
    toys: Toys, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delitem(CHANNELS.by_scheme, "toy")
    with pytest.raises(CannotStart, match=r"needs the setting channels\.url, such as nats://"):
        check(all_toys(), ("proxy",))
    on_nats = ChannelsSettings(url="nats://host:4222/elanus")
    check(all_toys().model_copy(update={"channels": on_nats}), ("proxy",))


def test_a_cluster_refuses_a_backend_that_its_processes_cannot_share(
    toys: Toys, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(LOGS.by_scheme, "toy", replace(toys.log, shared=False))
    with pytest.raises(CannotStart, match=r"cannot share the log 'toy://host:1/mine': set log\.url"):
        check(all_toys(), ("proxy",))


def test_settings_are_checked_without_the_libraries_of_any_backend() -> None:
    heavy = "{'grpc', 'nats', 'obstore', 'pyarrow', 'sqlite3'}"
    code = f"import sys, elanus.server.settings; print(sorted({heavy} & set(sys.modules)))"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"
