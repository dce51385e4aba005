"""Notices between the thread of a handler and the server of its call.

A server of calls registers for its threads. Code that blocks (for a tick, for an answer of another role)
calls `about_to_wait` first, and code that works for long asks `client_of_thread` or `check_client` whether
anybody still waits for the answer. All do nothing in threads for which nobody registered.
"""

from __future__ import annotations

import threading
from collections.abc import Callable

from elanus.core.errors import DeadlineExceeded


class _Notices(threading.local):
    notice: Callable[[], None] | None = None
    is_gone: Callable[[], bool] | None = None


_notices = _Notices()


def about_to_wait() -> None:
    """Say that the calling thread will block for an unknown time."""
    notice = _notices.notice
    if notice is not None:
        notice()


def on_wait(notice: Callable[[], None] | None) -> None:
    """Have ``notice`` called by every `about_to_wait` of the calling thread; None: no longer."""
    _notices.notice = notice


def client_of_thread() -> Callable[[], bool] | None:
    """Return what says whether the client of the calling thread's call is gone; None: it serves no call.

    Any thread may call it, as long as the call lasts.
    """
    return _notices.is_gone


def check_client(progress: str) -> None:
    """Raise `DeadlineExceeded` if the client of the calling thread's call is gone.

    ``progress``: a clause that says what is not done.
    """
    is_gone = _notices.is_gone
    if is_gone is not None and is_gone():
        raise DeadlineExceeded(f"the client has given up, when {progress}")


def serves(is_gone: Callable[[], bool] | None) -> None:
    """Have `client_of_thread` return ``is_gone`` in the calling thread; None: the call is over."""
    _notices.is_gone = is_gone
