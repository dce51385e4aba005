"""The index type FAISS: a client describes the index by a text of faiss' index factory.

Such a text, a recipe, is read as one of the kinds of this package, with its parameters: ``IVF64,Flat`` is
IVF_FLAT with 64 lists, and ``IVF64,PQ8x4,RFlat`` is IVF_PQ whose candidates are ranked by the vectors. So an
index is built, filtered and stored like any other; the type that the client sees stays FAISS. Recipes that
no kind matches are refused.

======================  ==========================================  ==========================
recipe                  kind                                        search parameters
======================  ==========================================  ==========================
``Flat``                FLAT
``IVF64,Flat``          IVF_FLAT, ``nlist`` 64                      ``nprobe``
``IVF64,SQ8``           IVF_SQ8                                     ``nprobe``
``IVF64,RaBitQ``        IVF_RABITQ                                  ``nprobe``
``IVF64,PQ8x4``         IVF_PQ, ``m`` 8, ``nbits`` 4 (8 if left     ``nprobe``
                        out)
``PQ8x4``               IVF_PQ with one list
``HNSW16,Flat``         HNSW, ``M`` 16 (32 if left out)             ``efSearch``
``BFlat``, ``BIVF64``   BIN_FLAT; BIN_IVF_FLAT, ``nlist`` 64        ``nprobe``
``..,RFlat``            refines IVF_SQ8, IVF_PQ and IVF_RABITQ      ``k_factor``
======================  ==========================================  ==========================
"""

from __future__ import annotations

import re
from collections.abc import Mapping

from elanus.core.errors import InvalidParameter, NotSupported
from elanus.core.types import DataType

FAISS = "FAISS"
RECIPE_KEY = "faiss_index_name"
RECIPE_TYPES = frozenset({DataType.FLOAT_VECTOR, DataType.BINARY_VECTOR})
SEARCH_NAMES = {"efSearch": "ef", "k_factor": "refine_k"}
"""Search parameters by faiss' names, and what the kinds call them."""
_M_DEFAULT, _NBITS_DEFAULT = "32", "8"
_RECIPE = re.compile(
    r"(?P<flat>Flat)"
    r"|IVF(?P<nlist>\d+),(?:(?P<rows>Flat)"
    r"|(?:(?P<bytes>SQ8)|(?P<bits>RaBitQ)|PQ(?P<m>\d+)(?:x(?P<nbits>\d+))?)(?P<refine>,RFlat)?)"
    r"|PQ(?P<only_m>\d+)(?:x(?P<only_nbits>\d+))?(?P<only_refine>,RFlat)?"
    r"|HNSW(?P<links>\d*)(?:,Flat)?"
)
_BINARY_RECIPE = re.compile(r"(?P<flat>BFlat)|BIVF(?P<nlist>\d+)(?:,BFlat)?")


def read_recipe(sent: Mapping[str, object], data_type: DataType) -> tuple[str, dict[str, object]]:
    """Return the name of the kind that a recipe means, and its parameters as a client would send them.

    Raises `InvalidParameter` without a recipe, and `NotSupported` for one that no kind matches.
    """
    recipe = sent.get(RECIPE_KEY)
    if not isinstance(recipe, str) or not recipe:
        raise InvalidParameter(f"param '{RECIPE_KEY}' not exist in json: the index type {FAISS} needs it")
    binary = data_type is DataType.BINARY_VECTOR
    found = (_BINARY_RECIPE if binary else _RECIPE).fullmatch(recipe)
    if found is None:
        known = (
            "BFlat or BIVF64" if binary else "Flat, IVF64,Flat, IVF64,SQ8, IVF64,PQ8x4,RFlat or HNSW16,Flat"
        )
        raise NotSupported(
            f"the faiss recipe {recipe[:100]!r} is not supported by this release: use one such as {known}, "
            "or another index type"
        )
    parts = found.groupdict()
    if binary:
        return ("BIN_FLAT", {}) if parts["flat"] else ("BIN_IVF_FLAT", {"nlist": parts["nlist"]})
    return _kind_of(parts)


def _kind_of(parts: Mapping[str, str | None]) -> tuple[str, dict[str, object]]:
    if parts["flat"]:
        return "FLAT", {}
    if parts["links"] is not None:
        return "HNSW", {"M": parts["links"] or _M_DEFAULT}
    if parts["only_m"]:
        code = {"m": parts["only_m"], "nbits": parts["only_nbits"] or _NBITS_DEFAULT}
        return "IVF_PQ", {"nlist": 1, **code, "refine": bool(parts["only_refine"])}
    lists: dict[str, object] = {"nlist": parts["nlist"]}
    if parts["rows"]:
        return "IVF_FLAT", lists
    lists["refine"] = bool(parts["refine"])
    if parts["bytes"]:
        return "IVF_SQ8", lists
    if parts["bits"]:
        return "IVF_RABITQ", lists
    return "IVF_PQ", {**lists, "m": parts["m"], "nbits": parts["nbits"] or _NBITS_DEFAULT}


def search_params(params: Mapping[str, object], k: int) -> Mapping[str, object]:
    """Return the parameters of a search for k hits by the names of the kinds.

    faiss takes a smaller effort than k, so ``efSearch`` is at least that.
    """
    renamed = {SEARCH_NAMES.get(name, name): value for name, value in params.items()}
    effort = params.get("efSearch")
    if isinstance(effort, int) and not isinstance(effort, bool) and 0 < effort < k:
        renamed["ef"] = k
    return renamed
