"""A proxy's copy of users and rights: dropped when notified, and worth nothing without the lease."""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine
from dataclasses import replace

import pytest
from fakes import FakeLease

from elanus.core.access import AccessPolicy, first_policy
from elanus.core.errors import LeaseLost
from elanus.proxy.role.policy_cache import PolicyCache


class Root:
    """Answers with a policy; ``gate`` holds an answer back."""

    def __init__(self) -> None:
        self.policy: AccessPolicy = first_policy()
        self.asked = 0
        self.gate = asyncio.Event()
        self.gate.set()

    async def access_policy(self) -> AccessPolicy:
        self.asked += 1
        policy = self.policy
        await self.gate.wait()
        return policy

    def change(self) -> None:
        self.policy = replace(self.policy, version=self.policy.version + 1)


def cache(root: Root, lease: FakeLease) -> PolicyCache:
    def never(work: Coroutine[object, object, AccessPolicy]) -> AccessPolicy:
        work.close()
        raise AssertionError("a thread would have to ask")

    return PolicyCache(root, lease, never)  # type: ignore[arg-type]


async def test_the_policy_is_read_once_and_again_when_it_was_dropped() -> None:
    root, lease = Root(), FakeLease()
    policies = cache(root, lease)
    assert await policies.read() is policies.current() is await policies.read()
    assert root.asked == 1
    root.change()
    policies.invalidate()
    assert (await policies.read()).version == 1
    assert root.asked == 2


async def test_a_policy_that_was_dropped_on_its_way_is_not_kept() -> None:
    root, lease = Root(), FakeLease()
    policies = cache(root, lease)
    root.gate.clear()
    reading = asyncio.ensure_future(policies.read())
    await asyncio.sleep(1.0)
    root.change()
    policies.invalidate()
    root.gate.set()
    assert (await reading).version == 0, "its request began before the change returned"
    assert (await policies.read()).version == 1


async def test_without_the_lease_the_copy_does_not_count() -> None:
    root, lease = Root(), FakeLease()
    policies = cache(root, lease)
    await policies.read()
    lease.valid = False
    with pytest.raises(AssertionError, match="would have to ask"):
        policies.current()
    lease.calls.failing["confirm"] = LeaseLost("it is over")
    with pytest.raises(LeaseLost):
        await policies.read()
    assert root.asked == 1
