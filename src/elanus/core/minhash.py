"""The parameters of MinHash functions.

==================  ======================================================================
``num_hashes``      elements of a signature; by default the output's dimension / 32
``shingle_size``    tokens in a row that are one member of the set (3)
``hash_function``   of a member: ``xxhash64``, ``xxhash`` (the same) or ``sha1`` (xxhash64)
``token_level``     ``word``: tokens are those of the analyzer; ``char``, ``character``:
                    they are the characters (word)
``seed``            chooses the hash functions of the elements (1234)
==================  ======================================================================

Names and values are compared without regard to case. The texts of errors are the reference's.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass

from elanus.core.errors import InvalidParameter

NUM_HASHES = "num_hashes"
SHINGLE_SIZE = "shingle_size"
HASH_FUNCTION = "hash_function"
TOKEN_LEVEL = "token_level"
SEED = "seed"
ELEMENT_BITS = 32
_NAMES = (NUM_HASHES, SHINGLE_SIZE, HASH_FUNCTION, TOKEN_LEVEL, SEED)
_NUMBER = re.compile(r"[+-]?\d{1,18}")


@dataclass(frozen=True, slots=True)
class MinHash:
    """A function's resolved parameters. ``by_characters``: whether tokens are characters."""

    hashes: int
    shingle_size: int = 3
    sha1: bool = False
    by_characters: bool = False
    seed: int = 1234


def minhash_of(params: Mapping[str, str], dim: int) -> MinHash:
    """Return the parameters. ``dim``: of the output field, in bits. Raises `InvalidParameter`."""
    sent = {name.lower(): value for name, value in params.items()}
    for name in sent:
        if name not in _NAMES:
            raise InvalidParameter(f"unknown param {name} of a MinHash function: use {', '.join(_NAMES)}")
    hash_function = sent.get(HASH_FUNCTION, "xxhash64").lower()
    if hash_function not in ("xxhash", "xxhash64", "sha1"):
        raise InvalidParameter(
            f"unknown hash function: {sent[HASH_FUNCTION]} (expected 'xxhash64' or 'sha1')"
        )
    level = sent.get(TOKEN_LEVEL, "word").lower()
    if level not in ("word", "char", "character"):
        raise InvalidParameter(f"unknown token_level: {sent[TOKEN_LEVEL]} (expected 'char' or 'word')")
    return MinHash(
        _positive(sent, NUM_HASHES, dim // ELEMENT_BITS),
        _positive(sent, SHINGLE_SIZE, 3),
        hash_function == "sha1",
        level != "word",
        _number(sent, SEED, 1234),
    )


def check_minhash(params: Mapping[str, str], output: str, dim: int) -> None:
    """Check a function's parameters against its output field. Raises `InvalidParameter`."""
    hashes = minhash_of(params, dim).hashes
    if dim % ELEMENT_BITS:
        raise InvalidParameter(
            f"minhash function output field '{output}' dim {dim} is not multiple of 32 "
            "(one minhash signature size)"
        )
    if dim != hashes * ELEMENT_BITS:
        raise InvalidParameter(
            f"minhash function output field '{output}' dim {dim} does not match expected dim "
            f"{hashes * ELEMENT_BITS} (numHashes {hashes} * one minhash signature size of 32bit)"
        )


def _number(sent: Mapping[str, str], name: str, default: int) -> int:
    if name not in sent:
        return default
    if not _NUMBER.fullmatch(sent[name]):
        raise InvalidParameter(f"param {name}:{sent[name]} is not a number")
    return int(sent[name])


def _positive(sent: Mapping[str, str], name: str, default: int) -> int:
    value = _number(sent, name, default)
    if name in sent and value <= 0:
        raise InvalidParameter(f"param {name}:{value} must be positive")
    return value
