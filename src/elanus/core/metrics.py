"""Metrics: how similar two vectors are, and whether larger or smaller scores are better.

==============  ==============================================  =====
A score is always given in the metric's own terms, as the reference does: nothing is negated on its way
to the client. Code that merges hits asks `Metric.bigger_is_better`.
"""

from __future__ import annotations

from enum import StrEnum


class Metric(StrEnum):
    """The wire's names."""

    L2 = "L2"
    IP = "IP"
    COSINE = "COSINE"
    HAMMING = "HAMMING"
    JACCARD = "JACCARD"
    SUBSTRUCTURE = "SUBSTRUCTURE"
    SUPERSTRUCTURE = "SUPERSTRUCTURE"
    BM25 = "BM25"
    MHJACCARD = "MHJACCARD"
    MAX_SIM = "MAX_SIM"
    MAX_SIM_COSINE = "MAX_SIM_COSINE"
    MAX_SIM_IP = "MAX_SIM_IP"
    MAX_SIM_L2 = "MAX_SIM_L2"
    MAX_SIM_HAMMING = "MAX_SIM_HAMMING"
    MAX_SIM_JACCARD = "MAX_SIM_JACCARD"

    @property
    def bigger_is_better(self) -> bool:
        return self.of_vectors in (Metric.IP, Metric.COSINE, Metric.BM25, Metric.MHJACCARD)

    @property
    def compares_lists(self) -> bool:
        """Whether it compares lists of vectors: each vector of the query with the best one of a row."""
        return self in _OF_VECTORS

    @property
    def takes_queries_singly(self) -> bool:
        """Whether the queries of a search are compared one after the other, and each may take long."""
        return self.compares_lists or self is Metric.BM25

    @property
    def of_vectors(self) -> Metric:
        """The metric that compares single vectors."""
        return _OF_VECTORS.get(self, self)

    @property
    def is_binary(self) -> bool:
        """Whether the metric compares bit vectors; the others compare float vectors."""
        return self in BINARY_METRICS

    @property
    def matches_only(self) -> bool:
        """Whether a row either matches a query or is no hit at all."""
        return self is Metric.SUBSTRUCTURE or self is Metric.SUPERSTRUCTURE

    @property
    def worst_score(self) -> float:
        """A score worse than every real one, used as padding where there is no hit."""
        return float("-inf") if self.bigger_is_better else float("inf")


_OF_VECTORS = {
    Metric.MAX_SIM: Metric.COSINE,
    Metric.MAX_SIM_COSINE: Metric.COSINE,
    Metric.MAX_SIM_IP: Metric.IP,
    Metric.MAX_SIM_L2: Metric.L2,
    Metric.MAX_SIM_HAMMING: Metric.HAMMING,
    Metric.MAX_SIM_JACCARD: Metric.JACCARD,
}
LIST_METRICS = tuple(_OF_VECTORS)
FLOAT_METRICS = (Metric.L2, Metric.IP, Metric.COSINE)
SPARSE_METRICS = (Metric.IP, Metric.BM25)
BINARY_METRICS = (
    Metric.HAMMING,
    Metric.JACCARD,
    Metric.SUBSTRUCTURE,
    Metric.SUPERSTRUCTURE,
    Metric.MHJACCARD,
)
ITERATOR_PAGE = "iterator_page"
"""The search parameter that requires every row in the range to be considered and none to be missed."""
TRUTH = "elanus_truth"
"""The search parameter that requires rows to be compared by the vectors that clients sent, not by codes."""
