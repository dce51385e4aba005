"""The settings with which faiss is loaded."""

from __future__ import annotations

from elanus.index.library import faiss, load_library


def test_kernels_that_round_queries_are_not_used() -> None:
    load_library()
    assert faiss.SIMDConfig.get_level() != faiss.SIMDLevel_AVX512_SPR
