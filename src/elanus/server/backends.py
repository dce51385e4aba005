"""Open the log, the query channels, the metadata and the object store that the settings name.

The scheme of a URL selects the backend, from the table of its package. Without a URL the log and the objects
are in the data directory. Metadata holds positions in one log and paths in one store, so a data directory is
bound to the first pair it is used with; any other pair is refused. Hosts and credentials may change, a prefix
or a bucket may not.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import msgspec

from elanus.channels.backends import BACKENDS as CHANNELS
from elanus.channels.port import OpenChannels
from elanus.core.backends import Backends, scheme_of, without_user
from elanus.log.backends import BACKENDS as LOGS
from elanus.log.port import HeldPositions, Log, LogFollower, LogOptions, nothing_held
from elanus.meta.backends import BACKENDS as METAS
from elanus.meta.port import MetaStore
from elanus.server.data_dir import Paths, write_durably
from elanus.server.settings import Settings
from elanus.server.startup import CannotStart
from elanus.storage.backends import BACKENDS as STORES
from elanus.storage.port import ObjectStore

_MB = 1024 * 1024
_ABANDONED_S = 3600.0
"""Nobody continues a write to an object that has paused for this long."""
_BINDING = "BACKENDS"


class _Binding(msgspec.Struct, forbid_unknown_fields=True):
    """The content of that file: the identities of the log and of the object store; "": in the directory."""

    log: str
    storage: str


def log_url(settings: Settings, paths: Paths) -> str:
    return settings.log.url or paths.local_log_url


def store_url(settings: Settings, paths: Paths) -> str:
    return settings.storage.url or paths.local_store_url


def channels_url(settings: Settings) -> str:
    """Return where the query channels of a cluster are: with the log, unless `channels.url` says
    otherwise."""
    return settings.channels.url or settings.log.url


def check_cluster(settings: Settings) -> None:
    """Raise `CannotStart` if the settings name no backends that the processes of a cluster can share."""
    _check_shared(METAS, settings.meta.url)
    _check_shared(LOGS, settings.log.url)
    _check_shared(STORES, settings.storage.url)
    if not settings.channels.url and scheme_of(settings.log.url) not in CHANNELS.shared:
        raise CannotStart(
            f"a cluster needs the setting channels.url, such as {_example(CHANNELS)}: there are no query "
            f"channels at log.url {without_user(settings.log.url)!r}"
        )


def _check_shared(backends: Backends[Any], url: str) -> None:
    if not url:
        raise CannotStart(f"a cluster needs the setting {backends.setting}, such as {_example(backends)}")
    if scheme_of(url) not in backends.shared:
        raise CannotStart(
            f"the processes of a cluster cannot share the {backends.port} {url!r}: set {backends.setting}, "
            f"for example to {_example(backends)}"
        )


def _example(backends: Backends[Any]) -> str:
    form: str = next(iter(backends.shared.values())).form
    return form


def open_meta(settings: Settings, owner: str) -> MetaStore:
    """Open the metadata of a cluster. ``owner``: a name that no other process uses. Raises `ElanusError`."""
    return METAS.of(settings.meta.url).open(settings.meta.url, owner)


async def open_channels(settings: Settings) -> OpenChannels:
    """Open the query channels of a cluster. Raises `ElanusError`."""
    url = channels_url(settings)
    return await CHANNELS.of(url).open(url)


async def open_log(settings: Settings, paths: Paths, held: HeldPositions = nothing_held) -> Log:
    """Open the log for the writing process. ``held``: the positions in the metadata that belongs to it.

    Raises `ElanusError` and `LogFault`.
    """
    url = log_url(settings, paths)
    options = LogOptions(
        append_timeout_s=settings.log.append_timeout_s,
        held=held,
        fsync=settings.log.fsync,
        file_bytes_max=settings.log.file_size_mb * _MB,
        sync_delay_ms=settings.log.sync_delay_ms,
    )
    return await LOGS.of(url).open(url, options)


async def open_follower(settings: Settings, paths: Paths, *, poll_ms: float) -> LogFollower:
    """Open the log for a process that only reads.

    ``poll_ms``: how often files are checked. Raises `ElanusError`.
    """
    url = log_url(settings, paths)
    return await LOGS.of(url).follow(url, poll_ms)


def open_objects(settings: Settings, paths: Paths, *, shared: bool = False) -> ObjectStore:
    """Open and check the store, and remove the leftovers of interrupted writes. Raises `ElanusError`.

    ``shared``: other processes may be writing to it.
    """
    url = store_url(settings, paths)
    backend = STORES.of(url)
    store = backend.open(url)
    store.check()
    backend.clean(url, _ABANDONED_S if shared else 0.0)
    return store


def open_objects_to_read(settings: Settings, paths: Paths) -> ObjectStore:
    """Open a store that another process of this server has opened by `open_objects`. Raises `ElanusError`."""
    url = store_url(settings, paths)
    return STORES.of(url).open(url)


def bind(settings: Settings, paths: Paths) -> None:
    """Raise `CannotStart` if the data directory has been used with another log or another store."""
    log, storage = settings.log.url, settings.storage.url
    chosen = {
        "log": LOGS.of(log).identity(log) if log else "",
        "storage": STORES.of(storage).identity(storage) if storage else "",
    }
    file = paths.root / _BINDING
    if not file.exists():
        # a directory without the file predates the settings log.url and storage.url
        bound = {"log": "", "storage": ""} if paths.meta.exists() else chosen
        try:
            write_durably(file, json.dumps(bound) + "\n")
        except OSError as error:
            raise CannotStart(f"{file} cannot be written: {error.strerror}") from error
    bound = _read_binding(file)
    for name, here in chosen.items():
        if bound[name] != here:
            raise CannotStart(
                f"the data directory {paths.root} belongs to the {name} {bound[name] or 'within it'}, the "
                f"setting {name}.url names {here or 'none'}: what is stored there cannot be read from here"
            )


def _read_binding(file: Path) -> dict[str, str]:
    try:
        bound = msgspec.json.decode(file.read_bytes(), type=_Binding)
    except (msgspec.MsgspecError, UnicodeDecodeError):
        raise CannotStart(
            f"{file} is damaged: restore it from a copy of the data directory, or delete it if log.url and "
            "storage.url were never set for this directory"
        ) from None
    return {"log": bound.log, "storage": bound.storage}
