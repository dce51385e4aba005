"""Errors between the components of the system, one family per port. Clients never see them.

::

    Fault
    ├── LogFault        the message log: closed, corrupt, trimmed, rewound, unreadable
    ├── StorageFault    the object store: an object is missing, taken, or corrupt; the store failed
    ├── MetaFault       the metadata store: closed, a comparison failed, a lease or a watch has ended
    └── JobFault        a Spark job: failed, cancelled

A caller that treats every failure of a port alike catches the family, never a list of its members or of a
library's errors: the adapters translate those. The errors themselves are declared with their ports
(`elanus.log.port`, `elanus.storage.port`, `elanus.meta.port`, `elanus.pipeline.port`). The errors that a
client can receive are `elanus.core.errors.ElanusError`; ports raise some of these too, where a client
should receive them (`DiskFull`, `Unavailable`).
"""

from __future__ import annotations

from typing import ClassVar


class Fault(Exception):
    """An operation on a port failed."""

    lasting: ClassVar[bool] = False
    """Whether the same operation can never succeed in this process."""


class LogFault(Fault):
    """An operation on the message log failed."""


class StorageFault(Fault):
    """An operation on the object store failed."""


class MetaFault(Fault):
    """An operation on the metadata store failed."""


class JobFault(Fault):
    """A job of the pipeline did not end with a result."""
