"""The error tree. Every error that a client can receive has both of its Milvus codes.

::

    ElanusError                      code  legacy
    ├── NotReady                        1   1   a role is still starting, or is restarting
    ├── Unavailable                     2   1   a peer cannot be reached; a retry may help
    │   └── LeaseLost                   2   1   a node was declared dead, or may have been; it joins again
    │       ├── NoSession               2   1   a coordinator does not know the node that calls it
    │       └── CoordinatorReplaced     2   1   an order from a coordinator that has a successor
    │   └── NotStarted                  2   1   a role cannot start at the moment; the text says why
    │   └── ChannelLost                 2   1   a query channel is gone; its successor has another name
    │   └── VersionChanged              2   1   a read that held up a version change; it is sent again
    │   └── ChannelRewound              2   1   a pchannel's log ends before what is known of it
    │   └── StoreAway                   2   1   the object store does not answer
    ├── DeadlineExceeded                2   1   a wait ended before its condition came true
    ├── TaskQueueFull                   4   1   the proxy holds its maximum of unfinished tasks
    ├── RateLimited                     8   49  a rate is exceeded, or too many writes are slowed; retry
    ├── ForceDenied                     9   48  a switch of a database or collection denies it
    ├── DiskLimitExceeded               9   54  the files of a collection, a database or all take their space
    ├── Internal                        5   1   a broken invariant: a defect of Elanus
    ├── DiskFull                        7   42  the disk (or its configured reserve) is used up
    ├── MemoryFull                      3   43  growing data exceeds its budget
    ├── InsufficientMemory              3   1   a load does not fit on the query nodes
    ├── FunctionFailed              65535   1   a provider did not turn texts into vectors
    ├── NotSupported                 1100   1   the request is understood, but not supported by this release
    ├── InvalidParameter             1100   5   a parameter is outside its domain
    │   ├── MissingParameter         1101   5
    │   ├── StoreRefused             1100   5   the object store refuses the credentials, or lacks the bucket
    │   ├── RecordTooLarge           1100   5   names, descriptions or properties too large for a record
    │   ├── InvalidProperty         65535   5   a property of an index with a wrong value
    │   ├── InvalidFilter            1100   5   a filter that cannot be parsed or bound
    │   ├── FieldNotLoaded           1100   1   a read needs a field that was not among those to load
    │   ├── InvalidDimension         1100   7
    │   ├── InvalidTopK              1100  10
    │   ├── InvalidDatabaseName       802   1
    │   └── InvalidFieldName         1701   1
    ├── AccessRefused               65535   1   a client may not do what it asked for
    │   ├── Unauthenticated          1800   1   nobody, or not the one that the client says it is
    │   └── PermissionDenied        65535   3   the user lacks a privilege
    ├── NotAuthenticated             1400   1   the old password of a password change is wrong
    ├── NotPermitted                 1401   1   what nobody may do: dropping root, or a default role
    ├── AccessConflict              65535   1   a user, role or group exists already, is missing, or is in use
    ├── PartlyWritten                1302   1   a part of a write was stored
    ├── CollectionNotFound            100   4
    ├── CollectionNotLoaded           101   1
    │   └── CollectionNotFullyLoaded  103   1   it is being loaded: by a request, or after a restart
    ├── CollectionLoaded              104   1   a change that a loaded collection does not allow
    ├── CollectionIllegalSchema       105   1   a property that does not fit the collection's fields
    ├── CollectionAlreadyExists      1100   1
    ├── CollectionLimitReached        102   1
    ├── SchemaMismatch                109  62   rows packed for a schema that the collection no longer has
    ├── PartitionNotFound             200   1
    ├── PartitionNotLoaded            201   1
    ├── ResourceGroupNotFound         300   1
    ├── ResourceGroupAlreadyExists    301   1
    ├── ResourceGroupLimitReached     302   1
    ├── ResourceGroupIllegalConfig    303   1
    ├── NodesNotEnough                304   1   fewer query nodes than a load needs
    ├── SegmentNotFound               600   1
    ├── SegmentUnreadable             601   1   files of a segment are damaged or missing
    ├── IndexNotFound                 700  25
    ├── IndexConflict                 702   1
    ├── DatabaseNotFound              800   1
    ├── DatabaseLimitReached          801   1
    ├── NodeNotFound                  901   1   a node that a balance names is in no replica, or in another
    ├── AliasNotFound                1600   1
    ├── AliasConflict                1601   1   a collection has that name
    ├── AliasAlreadyExists           1602   1   another collection has that alias
    ├── FieldNotFound                1700   1
    ├── SnapshotNotFound             1100   1   no snapshot of the collection has that name
    ├── TimestampTooOld              1100   1   a pinned read is older than the retention time
    ├── JobNotFound                  1100   1   the ledger has no such job, or no longer has it
    ├── ImportRefused                2100   1   an import that cannot be begun, or that is not known
    ├── NotCancellable               1100   1   the job has ended, or its kind cannot be cancelled
    ├── Cancelled                       5   1   the job was cancelled by a user
    ├── CommitRefused                   5   1   a job's commit came too late, or from a replaced owner
    └── NodeReplaced                    5   1   a node returns after a later one has taken its place

``code`` is what clients since 2.3 read, ``legacy_code`` what older ones read
(``common.ErrorCode``). ``retriable`` says whether the same request may succeed later unchanged.
One boundary, `elanus.proxy.wire.status`, turns them into a ``Status``.
"""

from __future__ import annotations

from typing import ClassVar


class ElanusError(Exception):
    """Base of every error that may reach a client. ``str(error)`` is the text the client sees.

    The text names the field, the value and the remedy.
    """

    code: ClassVar[int] = 65535
    legacy_code: ClassVar[int] = 1
    retriable: ClassVar[bool] = False

    def __init__(self, message: str) -> None:
        super().__init__(message)
        self.message = message


class NotReady(ElanusError):
    code, retriable = 1, True


class Unavailable(ElanusError):
    code, retriable = 2, True


class NotStarted(Unavailable):
    """A role could not start, and tries again. The call was not begun there."""


class ChannelLost(Unavailable):
    pass


class VersionChanged(Unavailable):
    """A query node gave up a waiting read so that a version change could go on."""


class ChannelRewound(Unavailable):
    """The log of a pchannel was put back to an older copy: entries would get positions that others had."""


class StoreAway(Unavailable):
    """The object store does not answer: that says nothing about what was asked for."""


class LeaseLost(Unavailable):
    """A request to a node was not acknowledged; whether it took effect is unknown."""


class NoSession(LeaseLost):
    """The calling node is not registered, or no longer registered."""


class CoordinatorReplaced(LeaseLost):
    """A node received an order from a coordinator whose successor it already knows."""


class DeadlineExceeded(ElanusError):
    code, retriable = 2, True


class TaskQueueFull(ElanusError):
    code, retriable = 4, True


class RateLimited(ElanusError):
    """Milvus clients repeat a request that gets this error, with growing pauses."""

    code, legacy_code, retriable = 8, 49, True


class ForceDenied(ElanusError):
    code, legacy_code = 9, 48


class DiskLimitExceeded(ElanusError):
    code, legacy_code = 9, 54


class Internal(ElanusError):
    code = 5


class FunctionFailed(ElanusError):
    """The provider of a function could not be reached, refused, or sent something else than vectors."""


class DiskFull(ElanusError):
    code, legacy_code = 7, 42


class MemoryFull(ElanusError):
    code, legacy_code, retriable = 3, 43, True


class InsufficientMemory(ElanusError):
    code = 3


class AccessRefused(ElanusError):
    """A client is refused before anything is done. Each front reports it in its own form: gRPC as a gRPC
    status, as the reference does, so that no client repeats the call."""


class Unauthenticated(AccessRefused):
    code = 1800


class PermissionDenied(AccessRefused):
    legacy_code = 3


class NotAuthenticated(ElanusError):
    code = 1400


class NotPermitted(ElanusError):
    code = 1401


class AccessConflict(ElanusError):
    """A user, role, grant or privilege group is not as the request assumes."""


class PartlyWritten(ElanusError):
    """A part of a write was stored. Not retriable: rows that are sent twice may be stored twice.

    ``pchannels``: those that stored all of their part. ``is_certain``: the others stored nothing; otherwise
    they may have.
    """

    code = 1302

    def __init__(
        self, message: str, pchannels: frozenset[str] = frozenset(), *, is_certain: bool = True
    ) -> None:
        super().__init__(message)
        self.pchannels = pchannels
        self.is_certain = is_certain


class NotSupported(ElanusError):
    code = 1100


class InvalidParameter(ElanusError):
    code, legacy_code = 1100, 5


class StoreRefused(InvalidParameter):
    """A setting is wrong, or keys were replaced on one side only: no call succeeds until somebody acts."""


class RecordTooLarge(InvalidParameter, ValueError):
    pass


class MissingParameter(InvalidParameter):
    code = 1101


class InvalidProperty(InvalidParameter):
    code = 65535


class InvalidFilter(InvalidParameter):
    """A filter that cannot be parsed or bound.

    ``position`` is the 0-based character offset in the filter text, ``None`` when unknown.
    """

    def __init__(self, message: str, position: int | None = None) -> None:
        super().__init__(message)
        self.position = position


class FieldNotLoaded(InvalidParameter):
    legacy_code = 1


class InvalidDimension(InvalidParameter):
    legacy_code = 7


class InvalidTopK(InvalidParameter):
    legacy_code = 10


class InvalidDatabaseName(InvalidParameter):
    code, legacy_code = 802, 1


class InvalidFieldName(InvalidParameter):
    code, legacy_code = 1701, 1


class CollectionNotFound(ElanusError):
    code, legacy_code = 100, 4


class CollectionLoaded(ElanusError):
    code = 104


class CollectionNotLoaded(ElanusError):
    code = 101


class CollectionNotFullyLoaded(CollectionNotLoaded):
    code = 103
    retriable = True


class CollectionIllegalSchema(ElanusError):
    code = 105


class CollectionAlreadyExists(ElanusError):
    code = 1100


class CollectionLimitReached(ElanusError):
    code = 102


class SchemaMismatch(ElanusError):
    """Rows packed for an outdated schema. Clients since 2.6 fetch the schema again and resend the rows."""

    code, legacy_code = 109, 62


class PartitionNotFound(ElanusError):
    code = 200


class PartitionNotLoaded(ElanusError):
    code = 201


class ResourceGroupNotFound(ElanusError):
    code = 300


class ResourceGroupAlreadyExists(ElanusError):
    code = 301


class ResourceGroupLimitReached(ElanusError):
    code = 302


class ResourceGroupIllegalConfig(ElanusError):
    code = 303


class NodesNotEnough(ElanusError):
    code = 304


class SegmentNotFound(ElanusError):
    code = 600


class SegmentUnreadable(ElanusError):
    """A segment's rows cannot be read: one of its files is damaged or missing. Names the file."""

    code = 601


class IndexNotFound(ElanusError):
    code, legacy_code = 700, 25


class IndexConflict(ElanusError):
    code = 702


class DatabaseNotFound(ElanusError):
    code = 800


class DatabaseLimitReached(ElanusError):
    code = 801


class NodeNotFound(ElanusError):
    code = 901


class AliasNotFound(ElanusError):
    code = 1600


class AliasConflict(ElanusError):
    code = 1601


class AliasAlreadyExists(ElanusError):
    code = 1602


class FieldNotFound(ElanusError):
    code = 1700


class SnapshotNotFound(ElanusError):
    code = 1100


class TimestampTooOld(ElanusError):
    code = 1100


class JobNotFound(ElanusError):
    code = 1100


class ImportRefused(ElanusError):
    code = 2100


class NotCancellable(ElanusError):
    code = 1100


class Cancelled(ElanusError):
    """A user cancelled the job, and with it the work it does: it is not retried automatically."""

    code = 5


class CommitRefused(ElanusError):
    """A pipeline commit whose checkpoint, epoch or segments are not the expected ones.

    The commit changes nothing. A job that ran twice or woke up late receives this error; clients never do.
    """

    code = 5


class NodeReplaced(ElanusError):
    """A node that was declared dead, and has a successor, registers again.

    Without this error, the two nodes would replace each other forever. The node shuts down; clients never
    receive this error.
    """

    code = 5


def all_error_types(root: type[ElanusError] = ElanusError) -> dict[str, type[ElanusError]]:
    """Return every error class by name, to rebuild remote errors from."""
    found = {root.__name__: root}
    for child in root.__subclasses__():
        found |= all_error_types(child)
    return found
