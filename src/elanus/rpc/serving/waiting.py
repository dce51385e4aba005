"""Notices from the thread of a handler to the server of its call.

A server of calls registers for its threads. Code that blocks (for a tick, for an answer of another role)
calls `about_to_wait` first. It does nothing in threads for which nobody registered.
"""

from __future__ import annotations

import threading
from collections.abc import Callable


class _Notices(threading.local):
    notice: Callable[[], None] | None = None


_notices = _Notices()


def about_to_wait() -> None:
    """Say that the calling thread will block for an unknown time."""
    notice = _notices.notice
    if notice is not None:
        notice()


def on_wait(notice: Callable[[], None] | None) -> None:
    """Have ``notice`` called by every `about_to_wait` of the calling thread; None: no longer."""
    _notices.notice = notice
