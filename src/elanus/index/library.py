"""faiss, which is loaded when it is first used.

A server without loaded collections does not need the library, which takes 16 MB and 30 ms of a start. Modules
of this package import the name ``faiss`` from here, and use it within functions only. `load_library` is for
threads that prepare searches, so that the first one need not wait.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    import faiss as faiss
else:

    class _Library:
        """Has the attributes of the module from the first look at one on. For any thread."""

        def __getattr__(self, name: str) -> Any:
            import faiss as module  # one thread runs it, and the others wait

            vars(self).update(vars(module))
            return getattr(module, name)

    faiss = _Library()


def load_library() -> None:
    """Load faiss, unless it has been loaded."""
    import faiss as faiss
