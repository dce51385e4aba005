"""faiss, which is loaded when it is first used.

A server without loaded collections does not need the library, which takes 16 MB and 30 ms of a start. Modules
of this package import the name ``faiss`` from here, and use it within functions only. `load_library` is for
threads that prepare searches, so that the first one need not wait.

On processors that multiply bfloat16 numbers (Sapphire Rapids and later), faiss would round a query to
bfloat16 before it is compared with bfloat16 rows, and scores would be wrong from the fourth digit on. So the
kernels of the level below are used there.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    import faiss as faiss
else:

    class _Library:
        """Has the attributes of the module from the first look at one on. For any thread."""

        def __getattr__(self, name: str) -> Any:
            module = _loaded()
            vars(self).update(vars(module))
            return getattr(module, name)

    faiss = _Library()


def load_library() -> None:
    """Load faiss, unless it has been loaded."""
    _loaded()


def _loaded() -> Any:
    import faiss as module  # one thread runs it, and the others wait

    simd = module.SIMDConfig
    if simd.get_level() == module.SIMDLevel_AVX512_SPR:
        below = module.SIMDLevel_AVX512_VPOPCNT
        simd.set_level(below if simd.is_simd_level_available(below) else module.SIMDLevel_AVX512)
    return module
