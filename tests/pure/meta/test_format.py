"""The number that keeps releases apart which would misread each other's metadata."""

from __future__ import annotations

import asyncio

import pytest

from elanus.core.errors import InvalidParameter
from elanus.meta.format import FORMAT, check_format
from elanus.meta.memory import MemoryMeta
from elanus.meta.port import Put


def store() -> MemoryMeta:
    return MemoryMeta(lambda: asyncio.get_running_loop().time())


async def test_the_first_process_writes_it_and_the_others_agree() -> None:
    meta = store()
    await asyncio.gather(*(check_format(meta) for _ in range(3)))
    found = await meta.get("format")
    assert found is not None
    assert found.value == str(FORMAT).encode()
    await check_format(meta)


@pytest.mark.parametrize("written", [b"2", b"0", b"\xff"])
async def test_another_form_is_left_alone(written: bytes) -> None:
    meta = store()
    await meta.txn([Put("format", written)])
    with pytest.raises(InvalidParameter, match=r"has format .*, this release reads 1: run the release that"):
        await check_format(meta)
    found = await meta.get("format")
    assert found is not None
    assert found.value == written
