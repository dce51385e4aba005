"""The settings of metadata, log, query channels and objects, and of how processes find each other."""

from __future__ import annotations

from typing import Annotated, Any, Self

from pydantic import AfterValidator, Field, model_validator

from elanus.channels.backends import BACKENDS as CHANNELS
from elanus.core.backends import Backends
from elanus.core.errors import InvalidParameter
from elanus.log.backends import BACKENDS as LOGS
from elanus.meta.backends import BACKENDS as METAS
from elanus.server.settings_base import Host, Port, Section, all_or_none
from elanus.storage.backends import BACKENDS as STORES


def _backend(backends: Backends[Any]) -> AfterValidator:
    """A URL that selects one of the backends, or ``""``."""

    def check(url: str) -> str:
        try:
            return backends.checked(url) if url else url
        except InvalidParameter as error:
            raise ValueError(error.message) from None

    return AfterValidator(check)


class MetaSettings(Section):
    """Metadata: a file in the data directory of a standalone server, etcd in a cluster."""

    url: Annotated[str, _backend(METAS)] = ""
    """Where the processes of a cluster (`elanus run`) keep their metadata and find each other:
    `etcd://host:port[,host:port]/prefix`. `etcds://` is encrypted, with `?ca=/file` for a CA of your own and
    `&cert=/file&key=/file` where etcd asks its clients for certificates. `elanus serve` does not use it."""


class ClusterSettings(Section):
    """How the processes of a cluster (`elanus run`) reach and authenticate each other."""

    host: Host = "127.0.0.1"
    """The address to listen on for the other processes of the cluster."""
    port: Port = 0
    """The port to listen on; 0 takes a free one. The others learn it from the metadata."""
    advertise: Host = "auto"
    """The name or address at which the others reach this process; `auto`: the value of `host`, which must
    then be a single address of the machine."""
    node_labels: dict[str, str] = Field(default_factory=dict)
    """Names and values that describe a query node in this process, for example `{"disk": "nvme"}`. A resource
    group with a `node_filter` takes only nodes with all its labels."""
    tls_cert: str = ""
    """A file with this process's certificate (PEM, intermediate ones behind it). It is shown to the processes
    that it calls and to those that call it, so it must be good for both. Without certificates calls between
    processes are neither encrypted nor authenticated."""
    tls_key: str = ""
    """The file with the certificate's key (PEM, without a password)."""
    tls_ca: str = ""
    """The file with the certificate of the CA (PEM). A process with a certificate of this CA belongs to
    the cluster and may make any call, so the CA should sign nothing else."""
    tls_server_name: str = ""
    """The name in the certificates of all processes, if it is not the address of each."""

    @model_validator(mode="after")
    def _can_be_reached(self) -> Self:
        if self.host in ("0.0.0.0", "::") and self.advertise == "auto":
            raise ValueError(
                f"host {self.host} stands for all addresses of this machine: set advertise to the one "
                "under which the others reach it"
            )
        return self

    @model_validator(mode="after")
    def _files_belong_together(self) -> Self:
        all_or_none(tls_cert=self.tls_cert, tls_key=self.tls_key, tls_ca=self.tls_ca)
        if self.tls_server_name and not self.tls_cert:
            raise ValueError("tls_server_name needs tls_cert, tls_key and tls_ca")
        return self


class LogSettings(Section):
    """The message log: files under `log/` in the data directory, or streams on NATS JetStream."""

    url: Annotated[str, _backend(LOGS)] = ""
    """Where the log is kept on NATS JetStream: `nats://host:port[,host:port]/prefix`, optionally with
    `?credentials=/file&replicas=3&monitor=8222`; `tls://` is encrypted. The file has NATS credentials or a
    line `user:password`. The servers need `sync_interval: always`, else an acknowledged write of the last two
    minutes does not survive the machine. `file:///directory` keeps a standalone server's log in files
    elsewhere. Empty: it is in files in the data directory. The last three settings below are for files."""
    append_timeout_s: float = Field(default=30, gt=0, le=600)
    """How long a write waits for NATS servers that do not respond before it fails."""
    fsync: bool = True
    """Whether an acknowledged write is on stable storage. Without it, an acknowledged write survives a
    crash of the process but not of the machine."""
    file_size_mb: int = Field(default=64, ge=1, le=4096)
    """The size at which a log file is closed and the next one is started; the log is trimmed by whole
    files."""
    sync_delay_ms: int = Field(default=1000, ge=1, le=60_000)
    """Time ticks of an idle channel reach stable storage within this time."""


class ChannelsSettings(Section):
    """Query channels, on which the proxies of a cluster send reads to query nodes. A standalone server has
    none."""

    url: Annotated[str, _backend(CHANNELS)] = ""
    """The NATS servers that carry the query channels: `nats://host:port[,host:port]/prefix`, with the
    parameters of `log.url`. All processes of the cluster need the same ones. The channels keep nothing
    beyond a read. Empty: the servers of the log."""


class StorageSettings(Section):
    """Segments, indexes and manifests: objects under `files/` in the data directory, or in a bucket."""

    url: Annotated[str, _backend(STORES)] = ""
    """Where objects are kept on S3: `s3://bucket/prefix`, optionally with
    `?endpoint=https://host:port&region=name&credentials=/file`. Keys come from that file, which has the
    form of a shared credentials file, else from the usual places: the environment (`AWS_ACCESS_KEY_ID` and
    so on), the shared credentials file, the machine's role. Spark tasks look for them where they run.
    `file:///directory` is a directory that all processes see under that path."""
