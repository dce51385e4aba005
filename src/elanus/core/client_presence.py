"""Whether the client still waits for what the calling thread works on.

A server of calls registers for its threads. Code that works for long asks now and then, and ends its work
when nobody waits for it any more. In threads for which nobody registered all of this does nothing.
"""

from __future__ import annotations

import threading
from collections.abc import Callable

from elanus.core.errors import DeadlineExceeded


class _Served(threading.local):
    is_gone: Callable[[], bool] | None = None


_served = _Served()


def serves(is_gone: Callable[[], bool] | None) -> None:
    """Have `client_of_thread` return ``is_gone`` in the calling thread; None: the call is over."""
    _served.is_gone = is_gone


def client_of_thread() -> Callable[[], bool] | None:
    """Return what says whether the client of the calling thread's call is gone; None: it serves no call.

    Any thread may call it, as long as the call lasts.
    """
    return _served.is_gone


def check_client(progress: str) -> None:
    """Raise `DeadlineExceeded` if the client is gone. ``progress``: a clause that says what is not done."""
    is_gone = _served.is_gone
    if is_gone is not None and is_gone():
        raise DeadlineExceeded(f"the client has given up, when {progress}")
