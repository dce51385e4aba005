"""Replace this process with another program that ends when the process that started it ends.

Run by path as ``python die_with_parent.py PARENT_PID PROGRAM ARGUMENT...``. A service must not outlive the
``elanus dev-cluster`` or the test run it belongs to, even if that is killed with SIGKILL and cannot
clean up. On Linux the kernel ensures this: it sends SIGTERM to this process when the *thread* that
started it ends, and the request survives ``exec``. Other systems have no such request: there, a killed
parent leaves its services behind.
"""

import ctypes
import os
import signal
import sys

_PR_SET_PDEATHSIG = 1


def main() -> None:
    parent = int(sys.argv[1])
    if sys.platform == "linux":
        ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, int(signal.SIGTERM))
        if os.getppid() != parent:  # it ended before the request took effect
            sys.exit(1)
    os.execvp(sys.argv[2], sys.argv[2:])


if __name__ == "__main__":
    main()
