"""Where the log and the objects are: below the data directory, or in services that settings name.

Metadata holds positions in one log and paths in one store, so a data directory belongs to the first pair
it was used with; with another it is refused. Hosts and credentials may change, a prefix or a bucket not.
"""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Protocol
from urllib.parse import urlsplit

from elanus.log.files import FileLog, FileLogOptions
from elanus.log.follower import FileLogFollower
from elanus.log.jetstream.source import NatsSource
from elanus.log.port import Log, LogReader, Position
from elanus.meta.etcd_source import EtcdSource
from elanus.meta.port import MetaStore
from elanus.server.data_dir import Paths
from elanus.server.settings import Settings
from elanus.server.startup import CannotStart
from elanus.storage.objects import LocalStore, open_store
from elanus.storage.port import ObjectStore

if TYPE_CHECKING:
    from elanus.rpc.nats_channels import NatsChannels

_MB = 1024 * 1024
_BINDING = "BACKENDS"


class LogFollower(Protocol):
    """The reading half of a log."""

    def open_reader(self, pchannel: str, start: Position, *, headers_only: bool = False) -> LogReader: ...

    async def close(self) -> None: ...


def log_url(settings: Settings, paths: Paths) -> str:
    return settings.log.url or paths.local_log_url


def store_url(settings: Settings, paths: Paths) -> str:
    return settings.storage.url or paths.local_store_url


def open_meta(settings: Settings, owner: str) -> MetaStore:
    """The metadata of a cluster. ``owner``: a name that no other process has. Raises `ElanusError`."""
    from elanus.meta.etcd import EtcdMeta  # a standalone server needs no etcd client

    source = EtcdSource.parse(settings.meta.url)
    credentials = source.credentials()
    return EtcdMeta(source.endpoints, root=source.prefix, owner=owner, credentials=credentials)


async def open_channels(settings: Settings) -> NatsChannels:
    """Query channels, on the NATS that has the log. Raises `ElanusError`."""
    from elanus.rpc.nats_channels import NatsChannels

    return await NatsChannels.open(NatsSource.parse(settings.log.url))


async def open_log(settings: Settings, paths: Paths) -> Log:
    """For the process that writes. Raises `ElanusError` and what `FileLog` raises."""
    if settings.log.url:
        from elanus.log.jetstream.log import NatsLog  # a log in files needs no NATS client

        source = NatsSource.parse(settings.log.url)
        return await NatsLog.open(source, append_timeout_s=settings.log.append_timeout_s)
    options = FileLogOptions(
        fsync=settings.log.fsync,
        file_bytes_max=settings.log.file_size_mb * _MB,
        sync_delay_ms=settings.log.sync_delay_ms,
    )
    return FileLog(paths.log, options)


async def open_follower(settings: Settings, paths: Paths, *, poll_ms: float) -> LogFollower:
    """For a process that only reads. ``poll_ms``: how often files are looked at. Raises `ElanusError`."""
    if settings.log.url:
        from elanus.log.jetstream.log import NatsLog

        return await NatsLog.open(NatsSource.parse(settings.log.url), name="elanus pipeline")
    return FileLogFollower(paths.log, poll_ms=poll_ms)


def open_objects(settings: Settings, paths: Paths) -> ObjectStore:
    """Opened, found usable, and free of what interrupted writes left. Raises `ElanusError`."""
    store = open_store(store_url(settings, paths))
    store.check()
    if isinstance(store, LocalStore):
        store.discard_staged()
    return store


def bind(settings: Settings, paths: Paths) -> None:
    """Raises `CannotStart` when the data directory has been used with another log or another store."""
    chosen = {"log": _identity(settings.log.url), "storage": _identity(settings.storage.url)}
    file = paths.root / _BINDING
    if not file.exists():
        # one without the file was written before there was a choice
        bound = {"log": "", "storage": ""} if paths.meta.exists() else chosen
        draft = file.with_suffix(".new")
        draft.write_text(json.dumps(bound) + "\n")
        draft.replace(file)
    bound = json.loads(file.read_text())
    for name, here in chosen.items():
        if bound[name] != here:
            raise CannotStart(
                f"the data directory {paths.root} belongs to the {name} {bound[name] or 'within it'}, the "
                f"setting {name}.url names {here or 'none'}: what is stored there cannot be read from here"
            )


def _identity(url: str) -> str:
    """What of a URL may not change: not hosts, parameters and passwords."""
    parts = urlsplit(url)
    place = parts.netloc if parts.scheme in ("s3", "file") else ""
    return f"{parts.scheme}:{place}/{parts.path.strip('/')}" if url else ""
