"""The time that building an index of vectors takes, computed from its parameters before it is built.

The figures are those of one core of an ordinary server of 2024, and within a factor of two of it for random
vectors. A server compares them with the builds that it has done (`elanus.core.build_speed`): only the ratios
between parameters, dimensions and numbers of rows matter then.
"""

from __future__ import annotations

from elanus.core.types import Space
from elanus.index import plan
from elanus.index.ivf import list_count
from elanus.index.spec import IndexSpec

ROW_NS = 1_000.0
"""To read a row, and to write it to the index file."""
VALUE_NS = 2.0
"""The same for each of its values."""
MULTIPLY_NS = 0.04
"""One multiplication of a matrix: vectors are compared with centroids in blocks."""
LIST_ROUNDS = 10
LIST_SAMPLE = 256
"""faiss trains lists in so many rounds, on at most so many rows for each."""
CODEWORD_NS = 3.5
"""One part of a vector compared with one codeword."""
CODEWORD_ROUNDS = 25
CODEWORD_SAMPLE = 256
POSTING_NS = 150.0
"""One value of a sparse vector, or one hash of a signature, in its posting list."""
_DISK_LINKS = 3
"""A graph on disk has a third of its ``max_degree`` as links (`elanus.index.diskann`)."""
_SCANN_WORDS = 16


def build_seconds(spec: IndexSpec, rows: int, values_per_row: float = 0.0) -> float:
    """Return how long one core builds an index over ``rows`` rows of one segment.

    ``values_per_row``: those that are not zero, for sparse vectors.
    """
    if spec.form.space is Space.SPARSE:
        return rows * (ROW_NS + values_per_row * POSTING_NS) / 1e9
    params, dim = spec.params, spec.dim
    total_ns = rows * (ROW_NS + VALUE_NS * dim)
    if spec.index_type == "MINHASH_LSH":
        total_ns += rows * dim / 32 * POSTING_NS
    if "efConstruction" in params:
        total_ns += _graph_ns(rows, dim, params["M"], params["efConstruction"])
    elif "max_degree" in params:
        total_ns += _graph_ns(rows, dim, params["max_degree"] // _DISK_LINKS, params["search_list_size"])
    if "nlist" in params:
        total_ns += _lists_ns(rows, dim, list_count(params["nlist"], rows))
    if "nbits" in params:
        total_ns += _codes_ns(rows, params["m"] * params.get("nrq", 1), 1 << params["nbits"])
    elif "sub_dim" in params:
        total_ns += _codes_ns(rows, dim // params["sub_dim"], _SCANN_WORDS)
    return total_ns / 1e9


def _graph_ns(rows: int, dim: int, links: int, effort: int) -> float:
    """Each row is searched for among those before it, with the effort of the build."""
    return rows * plan.graph_cost_ns(plan.Walk(effort, effort), rows, dim, max(1, links))


def _lists_ns(rows: int, dim: int, lists: int) -> float:
    compared = LIST_ROUNDS * min(rows, LIST_SAMPLE * lists) + rows
    return compared * lists * dim * MULTIPLY_NS


def _codes_ns(rows: int, parts: int, words: int) -> float:
    compared = CODEWORD_ROUNDS * min(rows, CODEWORD_SAMPLE * words) + rows
    return compared * parts * words * CODEWORD_NS
