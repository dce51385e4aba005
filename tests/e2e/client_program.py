"""The ordinary program that every client generation runs; the rows of the compatibility page.

It is run by the Python of a client's own environment, so it knows pymilvus and nothing of ours. Each
check does one thing the way a user would and looks at the answer. It prints one JSON object: section →
title → ``yes``, ``no: <error>``, or ``absent`` for what the client itself does not have.

    python client_program.py URI
"""

from __future__ import annotations

import json
import sys
import warnings

import client_checks_access
import client_checks_data
import client_checks_embedding
import client_checks_indexes
import client_checks_schema
import client_checks_search
import client_checks_text
import client_checks_types
import client_checks_use
import pymilvus
from client_base import program
from pymilvus import connections, utility

CHECKS = (
    client_checks_use,
    client_checks_schema,
    client_checks_search,
    client_checks_text,
    client_checks_embedding,
    client_checks_data,
    client_checks_types,
    client_checks_indexes,
    client_checks_access,
)
"""Importing a module of checks adds them to the program."""


def main() -> None:
    warnings.simplefilter("ignore")  # the newest client deprecates the ORM
    (program.uri,) = sys.argv[1:]
    connections.connect("default", uri=program.uri)
    assert utility.list_collections() == [], "this is somebody's server"
    program.run_all()
    assert utility.list_collections() == [], "a check left something behind"
    json.dump({"pymilvus": pymilvus.__version__, "outcomes": program.outcomes}, sys.stdout)


if __name__ == "__main__":
    main()
