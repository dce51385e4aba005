"""A role in parts: each call reaches the one part that implements it."""

from __future__ import annotations

from typing import Protocol

import pytest

from elanus.rpc.parts import Parts, method_of


class Greeting(Protocol):
    async def greet(self) -> str: ...


class Parting(Protocol):
    async def leave(self) -> str: ...


class Polite:
    async def greet(self) -> str:
        return "hello"

    async def leave(self) -> str:
        return "goodbye"


class InParts:
    def __init__(self) -> None:
        self.parts = Parts()
        self.parts.add(Greeting, Polite())

    async def leave(self) -> str:
        raise AssertionError("no interface of the role has it")


async def test_a_call_reaches_the_part_that_implements_it() -> None:
    assert await method_of(InParts(), "greet")() == "hello"


async def test_a_role_without_parts_answers_itself() -> None:
    assert await method_of(Polite(), "leave")() == "goodbye"


@pytest.mark.parametrize("method", ["leave", "unknown"])
def test_what_no_part_implements_cannot_be_called(method: str) -> None:
    with pytest.raises(AttributeError):
        method_of(InParts(), method)


def test_two_parts_cannot_implement_one_call() -> None:
    parts = Parts()
    parts.add(Greeting, Polite())
    parts.add(Parting, Polite())
    with pytest.raises(ValueError, match="greet"):
        parts.add(Greeting, Polite())
