"""``python -m elanus``: the same as the command ``elanus``."""

from elanus.cli import main

main()
