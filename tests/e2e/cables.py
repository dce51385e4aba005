"""A cable between two network devices, whose frames go through our hands: late, lost, or not at all.

The kernel's own network faults differ from machine to machine; tap devices are nearly
everywhere where network namespaces are.
"""

from __future__ import annotations

import contextlib
import fcntl
import heapq
import itertools
import os
import random
import select
import struct
import threading
import time
from collections.abc import Sequence

_TUNSETIFF = 0x400454CA
_IFF_TAP, _IFF_NO_PI = 0x0002, 0x1000
_FRAME_BYTES_MAX = 65536
_FRAMES_AT_ONCE = 64


class Cable:
    """Makes a tap device for each end. Every frame is late by ``delay_ms``, and of ``loss_percent`` there
    is nothing more to be seen; ``is_cut``: of all. It can be changed at any time.

    Raises `OSError` where tap devices cannot be made.
    """

    def __init__(self, here: str, there: str) -> None:
        self.delay_ms = 0.0
        self.loss_percent = 0.0
        self.is_cut = False
        self.lost_frames = 0
        self._chance = random.Random(1)
        self._stop, self._stopped = os.pipe()
        self._ends: dict[int, int] = {}
        try:
            self._ends[_tap(here)] = -1
            self._ends[_tap(there)] = -1
        except BaseException:
            self._release()
            raise
        one, other = self._ends
        self._ends = {one: other, other: one}
        self._thread = threading.Thread(target=self._carry, name=f"cable {here}", daemon=True)
        self._thread.start()

    def close(self) -> None:
        """The devices are gone then."""
        os.close(self._stopped)
        self._thread.join()
        self._release()

    def _release(self) -> None:
        for fd in (*self._ends, self._stop):
            os.close(fd)

    def _carry(self) -> None:
        under_way: list[tuple[float, int, int, bytes]] = []
        number = itertools.count()
        while True:
            wait_s = max(0.0, under_way[0][0] - time.monotonic()) if under_way else None
            ready, _, _ = select.select([*self._ends, self._stop], [], [], wait_s)
            if self._stop in ready:
                return
            due_s = time.monotonic() + self.delay_ms / 1000
            for end in ready:
                for frame in _frames(end):
                    if self.is_cut or self._chance.random() * 100 < self.loss_percent:
                        self.lost_frames += 1
                    else:
                        heapq.heappush(under_way, (due_s, next(number), self._ends[end], frame))
            while under_way and under_way[0][0] <= time.monotonic():
                _, _, end, frame = heapq.heappop(under_way)
                with contextlib.suppress(OSError):  # a device that is down takes nothing: one more is lost
                    os.write(end, frame)


def _tap(name: str) -> int:
    fd = os.open("/dev/net/tun", os.O_RDWR | os.O_NONBLOCK | os.O_CLOEXEC)
    try:
        fcntl.ioctl(fd, _TUNSETIFF, struct.pack("16sH22x", name.encode(), _IFF_TAP | _IFF_NO_PI))
    except BaseException:
        os.close(fd)
        raise
    return fd


def _frames(fd: int) -> Sequence[bytes]:
    """The bytes that have arrived, at most a part of them."""
    frames: list[bytes] = []
    with contextlib.suppress(BlockingIOError):
        while len(frames) < _FRAMES_AT_ONCE:
            frames.append(os.read(fd, _FRAME_BYTES_MAX))
    return frames
