"""Metadata in etcd: the store of a cluster.

All keys are under a root; revisions are etcd's own (``mod_revision``). Reads are linearizable.

**A lost answer.** The connection may break after a transaction was sent. Sending it again might apply it
twice, and reading proves nothing: the request may still be on its way. So every transaction that writes
also writes a *marker*, a small key that no other transaction uses at that time, on condition that the
marker has not changed since. When an answer is lost, a transaction that overwrites the marker under the same
condition settles it: if it succeeds, the lost one has not been applied and never will be, and may be sent
again; if it fails, the lost one was applied, at the marker's revision. Markers are named after the owner and
reused, so there are about as many as the largest number of transactions that were ever in flight at once.

A marker belongs to a lease, so it goes when its process was killed. It is used only while much of the lease
is left. If it goes all the same, under a process that was suspended, the condition of its transaction does
not hold any more, and one whose answer was lost has an unknown outcome.
"""

from __future__ import annotations

import asyncio
import itertools
import secrets
from collections.abc import AsyncGenerator, Sequence
from dataclasses import dataclass
from typing import Any

import grpc
from aetcd import rpc

from elanus.core.errors import DiskFull, Internal, Unavailable
from elanus.meta.checks import check_transaction, check_ttl
from elanus.meta.etcd_link import AnswerLost, Compacted, EtcdLink, Kv, LeaseCalls, is_cancelled, open_watch
from elanus.meta.etcd_pages import pages
from elanus.meta.port import (
    Change,
    Compare,
    CompareFailed,
    Delete,
    LeaseExpired,
    LeaseID,
    Listing,
    OutcomeUnknown,
    Put,
    StoreClosed,
    Versioned,
    WatchBroken,
)

_SETTLED = b"settled"
_MARKER_LEASE_S = 3600
"""How long markers may outlast their process. They are used for the first half of it."""


@dataclass(slots=True)
class _Marker:
    """``token``: the value that the last transaction with this marker wrote there, if it was applied.
    ``until_s``: when it is to be made again, on the loop's clock."""

    key: bytes
    revision: int
    until_s: float
    token: bytes = b""


class EtcdMeta:
    """The etcd adapter of `elanus.meta.port.MetaStore`. Used on one event loop.

    ``root``: the prefix of all keys. ``owner``: a name that no other process uses at the same time, for
    instance a role's address. ``credentials``: gRPC credentials, for an encrypted connection.
    """

    def __init__(
        self,
        endpoints: Sequence[str],
        *,
        root: str,
        owner: str,
        timeout_s: float = 5.0,
        credentials: Any = None,
    ) -> None:
        self._link = EtcdLink(endpoints, timeout_s, credentials)
        self._root = root.encode() + b"/"
        self._marker_root = f"{root}~txn/{owner}/"
        self._owner = owner
        self._tokens = (f"{secrets.token_hex(8)}/{n}".encode() for n in itertools.count())
        self._markers: list[_Marker] = []
        self._markers_made = 0
        self._marker_lease: tuple[LeaseID, float] | None = None
        """The lease of new markers, and their ``until_s``."""
        self._leasing = asyncio.Lock()
        self._closed = False

    async def get(self, key: str) -> Versioned | None:
        found = await self._link.repeat(Kv.range(key=self._key(key)))
        return _versioned(found.kvs[0]) if found.kvs else None

    async def list(self, prefix: str) -> Sequence[tuple[str, Versioned]]:
        return (await self.listing(prefix)).entries

    async def listing(self, prefix: str) -> Listing:
        while True:
            try:
                return await self._listing(self._key(prefix))
            except Compacted:
                continue  # the revision it began with was compacted meanwhile

    async def _listing(self, prefix: bytes) -> Listing:
        entries: list[tuple[str, Versioned]] = []
        revision = 0
        async for page in pages(self._link, prefix, _after_prefix(prefix)):
            revision = revision or page.header.revision
            entries += [(self._name(kv.key), _versioned(kv)) for kv in page.kvs]
        return Listing(entries, revision)

    async def txn(self, operations: Sequence[Put | Delete], compares: Sequence[Compare] = ()) -> int:
        check_transaction(operations, compares)
        if not operations:
            answer = await self._link.repeat(Kv.txn(self._request((), compares, None)))
            return self._revision(answer, compares)
        deadline_s = self._link.deadline_s()
        while True:
            marker = await self._take_marker()
            marker.token = next(self._tokens)
            try:
                answer = await self._link.once(
                    Kv.txn(self._request(operations, compares, marker)), deadline_s
                )
            except AnswerLost as error:
                applied_at = await self._settle(marker, error)
                if applied_at is not None:
                    return applied_at
                if not self._link.is_time_left(deadline_s):
                    raise Unavailable(f"{error}; retry when it is back") from error
                continue
            except Exception:  # refused; only a cancelled call leaves its marker in an unknown state
                self._markers.append(marker)
                raise
            if not answer.succeeded and _found_revision(answer.responses[-1]) != marker.revision:
                continue  # another process has written this marker; retry with another marker
            if answer.succeeded:
                marker.revision = answer.header.revision
            self._markers.append(marker)
            return self._revision(answer, compares)

    async def grant_lease(self, ttl_s: int) -> LeaseID:
        check_ttl(ttl_s)
        return LeaseID((await self._link.repeat(LeaseCalls.grant(ttl_s))).ID)

    async def renew_lease(self, lease: LeaseID) -> int:
        answer = await self._link.repeat(LeaseCalls.renew(lease))
        if answer.TTL <= 0:
            raise LeaseExpired(f"lease {lease} is over")
        return int(answer.TTL)

    async def revoke_lease(self, lease: LeaseID) -> None:
        try:
            await self._link.repeat(LeaseCalls.revoke(lease))
        except LeaseExpired:
            return  # it was over already

    async def watch(self, prefix: str, after: int) -> AsyncGenerator[Sequence[Change], None]:
        request = rpc.WatchCreateRequest(
            key=self._key(prefix), range_end=_after_prefix(self._key(prefix)), start_revision=after + 1
        )
        if self._closed:
            raise StoreClosed("the metadata store is closed")
        stream = open_watch(self._link.channel())
        try:
            await stream.write(rpc.WatchRequest(create_request=request))
            while (answer := await stream.read()) is not grpc.aio.EOF:
                if answer.canceled or answer.compact_revision:
                    raise WatchBroken(answer.cancel_reason or f"compacted at {answer.compact_revision}")
                if changes := [self._change(event) for event in answer.events]:
                    yield changes
            raise Unavailable("etcd ended a watch")
        except asyncio.CancelledError as error:
            if is_cancelled():
                raise
            raise self._broken_off("its connection was closed") from error
        except grpc.aio.AioRpcError as error:
            raise self._broken_off(f"{error.code().name} {error.details()}") from error
        finally:
            stream.cancel()

    async def close(self) -> None:
        if self._closed:
            return
        await self._forget_markers()
        self._closed = True
        await self._link.close()

    def _broken_off(self, why: str) -> Exception:
        if self._closed:
            return StoreClosed("the metadata store is closed")
        return Unavailable(f"a watch in etcd broke off: {why}")

    # markers

    async def _take_marker(self) -> _Marker:
        if not self._markers:
            self._markers_made += 1
            return await self._made_marker(f"{self._marker_root}{self._markers_made}".encode())
        marker = self._markers.pop()
        if marker.until_s > asyncio.get_running_loop().time():
            return marker
        return await self._made_marker(marker.key)

    async def _made_marker(self, key: bytes) -> _Marker:
        while True:
            lease, until_s = await self._lease_for_markers()
            put = rpc.RequestOp(request_put=rpc.PutRequest(key=key, lease=lease))
            try:
                answer = await self._link.repeat(Kv.txn(rpc.TxnRequest(success=[put])))
            except LeaseExpired:  # etcd was put back to an earlier state
                self._marker_lease = None
                continue
            return _Marker(key, answer.header.revision, until_s)

    async def _lease_for_markers(self) -> tuple[LeaseID, float]:
        async with self._leasing:
            now_s = asyncio.get_running_loop().time()
            if self._marker_lease is None or self._marker_lease[1] <= now_s:
                lease = LeaseID((await self._link.repeat(LeaseCalls.grant(_MARKER_LEASE_S))).ID)
                self._marker_lease = lease, now_s + _MARKER_LEASE_S / 2
            return self._marker_lease

    async def _settle(self, marker: _Marker, lost: AnswerLost) -> int | None:
        """Return the revision at which an unanswered transaction was applied; ``None``: it never will be.

        Raises `OutcomeUnknown` when that cannot be determined in time.
        """
        request = rpc.TxnRequest(
            compare=[_mod_is(marker.key, marker.revision)],
            success=[_marked(marker, _SETTLED)],
            failure=[rpc.RequestOp(request_range=rpc.RangeRequest(key=marker.key))],
        )
        try:
            answer = await self._link.repeat(Kv.txn(request))
        except Unavailable as error:
            raise OutcomeUnknown(f"{lost}; whether the last change was stored is not known") from error
        if answer.succeeded:
            marker.revision = answer.header.revision
            self._markers.append(marker)
            return None
        found = answer.responses[0].response_range.kvs
        if not found:
            raise OutcomeUnknown(f"{lost}; whether the change was stored is not known: its marker is gone")
        value = found[0].value
        if value not in (_SETTLED, marker.token):
            raise OutcomeUnknown(f"{lost}; another process writes the markers of {self._owner}") from lost
        marker.revision = found[0].mod_revision
        self._markers.append(marker)
        # already settled, by an attempt of this same call whose answer was lost as well
        return None if value == _SETTLED else marker.revision

    async def _forget_markers(self) -> None:
        self._markers.clear()
        if self._marker_lease is not None:
            revoke = LeaseCalls.revoke(self._marker_lease[0])
            try:
                await self._link.once(revoke, self._link.deadline_s())
            except (AnswerLost, LeaseExpired, DiskFull, Internal):
                return  # they go with their lease

    # translation

    def _request(
        self, operations: Sequence[Put | Delete], compares: Sequence[Compare], marker: _Marker | None
    ) -> Any:
        """If it fails, the answer contains every compared key, which shows the ones that have changed."""
        conditions = [_mod_is(self._key(c.key), c.revision) for c in compares]
        writes = [self._operation(operation) for operation in operations]
        if marker is not None:
            conditions.append(_mod_is(marker.key, marker.revision))
            writes.append(_marked(marker, marker.token))
        looks = [rpc.RequestOp(request_range=rpc.RangeRequest(key=c.key, keys_only=True)) for c in conditions]
        return rpc.TxnRequest(compare=conditions, success=writes, failure=looks)

    def _operation(self, operation: Put | Delete) -> Any:
        key = self._key(operation.key)
        if isinstance(operation, Put):
            put = rpc.PutRequest(key=key, value=bytes(operation.value), lease=operation.lease)
            return rpc.RequestOp(request_put=put)
        return rpc.RequestOp(request_delete_range=rpc.DeleteRangeRequest(key=key))

    def _revision(self, answer: Any, compares: Sequence[Compare]) -> int:
        """Raises `CompareFailed`."""
        if answer.succeeded:
            return int(answer.header.revision)
        found = [_found_revision(response) for response in answer.responses]
        changed = [c.key for c, seen in zip(compares, found, strict=False) if seen != c.revision]
        raise CompareFailed(changed)

    def _change(self, event: Any) -> Change:
        is_put = event.type == rpc.Event.PUT
        entry = _versioned(event.kv) if is_put else None
        return Change(self._name(event.kv.key), event.kv.mod_revision, entry)

    def _key(self, key: str) -> bytes:
        return self._root + key.encode()

    def _name(self, key: bytes) -> str:
        return key[len(self._root) :].decode()


def _versioned(kv: Any) -> Versioned:
    return Versioned(kv.value, kv.mod_revision)


def _marked(marker: _Marker, value: bytes) -> Any:
    return rpc.RequestOp(request_put=rpc.PutRequest(key=marker.key, value=value, ignore_lease=True))


def _mod_is(key: bytes, revision: int) -> Any:
    return rpc.Compare(key=key, target=rpc.Compare.MOD, result=rpc.Compare.EQUAL, mod_revision=revision)


def _found_revision(response: Any) -> int:
    kvs = response.response_range.kvs
    return kvs[0].mod_revision if kvs else 0


def _after_prefix(prefix: bytes) -> bytes:
    """Return the end of the range of all keys with the prefix. Keys are ASCII, and so is its last byte."""
    return prefix[:-1] + bytes([prefix[-1] + 1])
