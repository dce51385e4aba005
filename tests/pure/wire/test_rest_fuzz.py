"""Requests drawn from the OpenAPI document, well formed and damaged: no answer is a server error.

The draws are seeded. Verbs that fail in ways of their own are not the subject: these errors are refusals.
"""

from __future__ import annotations

import json
import random
from collections.abc import Callable
from typing import Any

import pytest
from fake_verbs import FakeVerbs
from rest_client import RestClient, rest_front

from elanus.core.errors import ElanusError, Internal, InvalidParameter
from elanus.proxy.rest.openapi import document
from elanus.proxy.rest.table import PREFIX, TABLE

ROUNDS = 25
NAMES = ["c", "id", "vector", "none", "p", "", "1 bad", "é", "x" * 300, "*", "count(*)", "default"]
NUMBERS: list[Any] = [0, 1, 2, -1, 3.5, 2**31, 2**53 + 1, 2**63, -(2**63) - 1, 2**70, 1e300]
ODD: list[Any] = [
    None,
    True,
    [],
    {},
    "",
    "true",
    "[1]",
    '{"a":1}',
    [[]],
    [None],
    {"": None},
    "\x00",
    "A" * 5000,
]


class Draws:
    """Values for schemas of the document."""

    def __init__(self, seed: str, schemas: dict[str, Any]) -> None:
        self._random = random.Random(seed)
        self._schemas = schemas

    def value(self, schema: dict[str, Any], name: str = "") -> Any:
        if self._random.random() < 0.08:
            return self._random.choice([*ODD, *NUMBERS, *NAMES])
        if "$ref" in schema:
            return self.value(self._schemas[schema["$ref"].rpartition("/")[2]])
        if "anyOf" in schema:
            return self.value(self._random.choice(schema["anyOf"]), name)
        match schema.get("type"):
            case "object" if "properties" in schema:
                return self._object(schema)
            case "object":
                return {self._random.choice([*NAMES, "dim", "max_length"]): self._any(2) for _ in range(2)}
            case "array":
                return [self.value(schema.get("items", {}), name) for _ in range(self._random.randrange(3))]
            case "string":
                return "c" if name == "collectionName" else self._random.choice(NAMES)
            case "integer":
                return self._random.choice(NUMBERS[:3])
            case "boolean":
                return self._random.random() < 0.5
            case "null":
                return None
            case _:
                return [1.0, 0.0] if name == "data" and self._random.random() < 0.5 else self._any(3)

    def _object(self, schema: dict[str, Any]) -> dict[str, Any]:
        required = schema.get("required", [])
        found = {
            name: self.value(member, name)
            for name, member in schema["properties"].items()
            if (name in required and self._random.random() < 0.95) or self._random.random() < 0.4
        }
        if self._random.random() < 0.05:
            found[self._random.choice(["", "unknown", "\x00"])] = self._any(1)
        return found

    def _any(self, depth: int) -> Any:
        kind = self._random.randrange(6 if depth else 4)
        if kind == 0:
            return self._random.choice(NUMBERS)
        if kind == 1:
            return self._random.choice(NAMES)
        if kind < 4:
            return self._random.choice(ODD)
        if kind == 4:
            return [self._any(depth - 1) for _ in range(self._random.randrange(4))]
        return {self._random.choice(NAMES): self._any(depth - 1) for _ in range(self._random.randrange(4))}

    def damaged(self, body: bytes) -> bytes:
        """The body, in one of ten cases with some bytes changed."""
        if self._random.random() > 0.1 or not body:
            return body
        changed = bytearray(body)
        for _ in range(self._random.randrange(1, 4)):
            changed[self._random.randrange(len(changed))] = self._random.randrange(256)
        return bytes(changed[: self._random.randrange(1, len(changed) + 1)])


class RefusingVerbs(FakeVerbs):
    """Every failure of the fake is a refusal."""

    def __getattribute__(self, name: str) -> Any:
        found = super().__getattribute__(name)
        return _refusing(found) if callable(found) and not name.startswith("_") else found


def _refusing(verb: Callable[..., Any]) -> Callable[..., Any]:
    def call(*arguments: Any, **more: Any) -> Any:
        try:
            return verb(*arguments, **more)
        except ElanusError:
            raise
        except Exception as error:
            raise InvalidParameter(f"the fake failed: {error}") from error

    return call


@pytest.mark.parametrize("path", TABLE)
def test_no_request_makes_the_server_fail(path: str) -> None:
    description = document()
    schema = description["paths"][PREFIX + path]["post"]["requestBody"]["content"]["application/json"][
        "schema"
    ]
    draws = Draws(path, description["components"]["schemas"])
    verbs = RefusingVerbs()
    client = RestClient(rest_front(verbs))
    understood = 0
    for _ in range(ROUNDS):
        if ("default", "c") not in verbs.held:
            client.post("collections/create", collectionName="c", dimension=2)
        body = draws.damaged(json.dumps(draws.value(schema)).encode())
        answer = client.send(path, body)
        assert isinstance(answer["code"], int)
        assert answer["code"] != Internal.code, (path, body, answer)
        assert answer["code"] == 0 or answer["message"], (path, body)
        understood += answer["code"] not in (1801, 1802)
    assert understood, "no draw was well formed"
