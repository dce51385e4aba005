"""Every limit of the system, by name, in one place. Each name ends with its unit, if it has one."""

from __future__ import annotations

NAME_LENGTH_MAX_CHARS = 255
COLLECTION_DESCRIPTION_MAX_BYTES = 1024
COLLECTION_FIELDS_MAX = 64
VECTOR_FIELDS_MAX = 10
DIMENSION_MAX = 32_768
DIMENSION_MIN = 2
SHARDS_MAX = 16
PARTITIONS_MAX = 4096
"""Partitions of one collection. Newer releases of the reference refuse more than 1024 by default."""
KEY_PARTITIONS_MAX = 1024
"""Partitions of a collection whose rows go by a partition key."""
DATABASES_MAX = 64
COLLECTIONS_MAX = 65_536
RESOURCE_GROUPS_MAX = 1024
PROPERTIES_MAX = 1024
"""Properties of one collection or database; parameters of one field or index."""
NAMED_COLLECTIONS_MAX = 1024
"""Names, or ids, of collections in one request."""
SENT_IDS_MAX = 65_536
"""Ids of segments or nodes in one request, which the event loop looks up: shards times partitions."""
VARCHAR_LENGTH_MAX_BYTES = 65_535
ARRAY_CAPACITY_MAX = 4096
"""Elements of one row of an array field."""
JSON_LENGTH_MAX_BYTES = 65_536
TOP_K_MAX = 16_384
QUERY_WINDOW_MAX_ROWS = 16_384
"""offset + limit of one query or search."""
LARGE_WINDOW_MAX_ROWS = 1_000_000
"""The same of a collection with the property ``query_mode=large_topk``."""
NQ_MAX = 16_384
SPARSE_QUERY_PAIRS_MAX = 1 << 25
"""Sparse vectors of one search, times the values of the longest: 256 MB."""
HYBRID_SEARCHES_MAX = 1024
"""Searches in one hybrid search."""
GROUP_SIZE_MAX = 10
"""Hits per group of one grouping search."""
BUCKET_LEVELS_MAX = 4
"""Levels of the buckets of one search aggregation."""
BUCKET_ENTRIES_MAX = 10_000
"""Query vectors, times buckets of all levels, times hits of each, of one search aggregation."""
ROUND_DECIMAL_MIN = -1
ROUND_DECIMAL_MAX = 6
GRPC_MESSAGE_MAX_BYTES = 512 * 1024 * 1024
LOG_ENTRY_TARGET_BYTES = 5 * 1024 * 1024
"""An insert larger than this is split into several log entries."""
WRITE_ID_LENGTH_MAX = 256
IMPORT_FILES_MAX = 1024
"""Names of files, patterns and directories in one import."""
IMPORT_FILES_FOUND_MAX = 65_536
"""Files of one pattern or directory in an import."""
IMPORT_REJECTS_MAX = 1_000_000
"""Rows that one import may leave out at most."""
FILTER_LENGTH_MAX_CHARS = 64_000_000
FILTER_UNLISTED_MAX_CHARS = 500_000
"""The part of a filter outside of lists of plain literals: it is parsed token by token."""
MEMBERSHIP_FILTER_MAX_BYTES = 64 << 20
"""A set that a client built for ``membership_match``, without its head."""
FILTER_DEPTH_MAX = 200
FILTER_BRACKETS_MAX = 5000
"""Brackets that may be open at a time, those that only group included."""
SYSTEM_FIELDS_MAX_ID = 100
"""User fields are numbered from this value; RowID is 0 and Timestamp is 1."""
USER_NAME_MAX_CHARS = 32
PASSWORD_MIN_BYTES = 6
PASSWORD_MAX_BYTES = 72
"""The reference's: more than that was not hashed by its first releases."""
PRIVILEGE_GROUPS_MAX = 1024
GRANTS_OF_ROLE_MAX = 4096
API_KEYS_OF_USER_MAX = 64
API_KEY_DAYS_MAX = 3650
API_KEY_SCOPE_MAX = 64
API_KEY_DESCRIPTION_MAX_CHARS = 255
"""They are stored under one key of the metadata."""
