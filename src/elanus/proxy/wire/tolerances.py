"""Parameters that clients may send without effect, or in several places: rows of the compatibility page.

A parameter is tolerated only if it cannot change an answer. Requests for features of the reference that this
release lacks are refused, with a hint on what to do instead.
"""

from __future__ import annotations

from dataclasses import dataclass

from elanus.index.ignored import FOREIGN_SEARCH_PARAMS


@dataclass(frozen=True, slots=True)
class Tolerance:
    """A row of the compatibility page: the parameters, where they are sent, and their effect."""

    parameters: str
    where: str
    treatment: str


_IGNORED = "accepted, no effect"
_LOGGED = "accepted, no effect, logged once"
TOLERANCES = (
    Tolerance("any other name", "index of a named type, such as `nlist` for FLAT", _LOGGED),
    Tolerance("any other name", "AUTOINDEX", "refused, as by the reference"),
    Tolerance(", ".join(f"`{name}`" for name in sorted(FOREIGN_SEARCH_PARAMS)), "search", _IGNORED),
    Tolerance(
        "`json_cast_function`: `STRING_TO_DOUBLE`",
        "index of a JSON path",
        "accepted, no effect: no index changes an answer, so a text is not found as a number; store numbers",
    ),
    Tolerance(
        "`add_file_resource`; `stop_words_file`, `synonyms_file`, `word_list_file`, `extra_dict_file`",
        "client, analyzers",
        "refused: files may change under the rows that were analyzed with them; put the words into "
        "`analyzer_params`",
    ),
    Tolerance("`hints`: `iterative_filter`, `disable`", "search", "accepted: they change speed only"),
    Tolerance(
        "`page_retain_order`",
        "search",
        "accepted: pages keep their order, except of equal scores over an exact scan by inner product "
        "(faiss keeps any of them)",
    ),
    Tolerance("`group_size`, `strict_group_size` without a field to group by", "search", _IGNORED),
    Tolerance(
        "`offset`, `round_decimal` in a search of a hybrid search",
        "hybrid search",
        "no effect: those of the hybrid search count, as in the reference",
    ),
    Tolerance(
        "grouping in the searches of a hybrid search",
        "hybrid search",
        "no effect if the hybrid search has one, as in the reference; otherwise that of the searches counts, "
        "which must be the same: pymilvus sends `group_by_fields` only there",
    ),
    Tolerance("`offset` without a limit", "query", _IGNORED),
    Tolerance("`limit`, `data`, `param` and any other name", "search", _LOGGED),
    Tolerance(
        "`nprobe`, `ef`, `radius` and other parameters of an index",
        "search, in `params`, next to it, or both",
        "used; two different values are refused",
    ),
    Tolerance(
        "`anns_field`, `metric_type`, `offset`, `round_decimal`, `ignore_growing`",
        "search, in `params`, next to it, or both",
        "used; a default gives way, two different values are refused",
    ),
    Tolerance("`expr`", "search, in `params` or next to it", "accepted when it repeats the filter"),
    Tolerance(
        "`cluster_id`", "search and query, of `MilvusClient.session`", "accepted: there is one cluster"
    ),
    Tolerance("`filter` and `limit` next to `id`", "REST `entities/get`", _LOGGED),
    Tolerance("`db_id`", "AlterDatabase, in addition to the name", _IGNORED),
    Tolerance(
        "`query_mode`: `large_topk`",
        "collection, a property",
        "used: limit and offset reach over 1,000,000 rows; indexes stay as they are",
    ),
    Tolerance(
        "`lazyload.enabled`",
        "collection, a property",
        "kept and described, no effect: a load reads what is loaded; `load_fields` leaves fields out, and "
        "`mmap.enabled` maps files",
    ),
    Tolerance("any other property", "collection, database", "kept and described, no effect"),
    Tolerance("`priority`", "load", "accepted, no effect: loads have one priority"),
    Tolerance("`is_l0`", "compact", "accepted: every compaction that rewrites segments folds deletes in"),
    Tolerance(
        "`target_size` above `datacoord.segment_size_max_mb`",
        "compact",
        "accepted: segments are merged up to that setting",
    ),
    Tolerance(
        "`timestamp`",
        "describe_index, progress of an index",
        "accepted, no effect: the states are those of all segments",
    ),
    Tolerance(
        "`compaction_protection_seconds`",
        "create_snapshot",
        "accepted: a snapshot keeps its files, whatever compaction does",
    ),
    Tolerance("`row_based`", "do_bulk_insert", "accepted, no effect: the names of files say their formats"),
    Tolerance("`hash_keys`", "insert, upsert, delete", "accepted, no effect: the server computes them"),
)
"""The compatibility page is generated from this."""
