"""The metrics of fields that functions compute: BM25 for terms, MHJACCARD for MinHash signatures.

``computed_by`` is the kind of the function that computes a field, "" if clients send its vectors.
"""

from __future__ import annotations

from collections.abc import Mapping

from elanus.core.errors import InvalidParameter
from elanus.core.functions import BM25, MINHASH
from elanus.core.metrics import Metric
from elanus.core.minhash import ELEMENT_BITS
from elanus.index.minhash_rows import ELEMENT_BITS_KEY
from elanus.index.spec import METRIC_TYPE_KEY, IndexSpec

_METRICS = {BM25: Metric.BM25, MINHASH: Metric.MHJACCARD}


def with_metric(params: Mapping[str, str], computed_by: str) -> Mapping[str, str]:
    """Return an index's parameters, with the only metric of a function's output if they have none."""
    metric = _METRICS.get(computed_by)
    return params if metric is None else {METRIC_TYPE_KEY: str(metric), **params}


def check_metric(spec: IndexSpec, computed_by: str) -> None:
    """Raises `InvalidParameter` unless a function's output has its metric, and for BM25 on other fields."""
    metric = _METRICS.get(computed_by)
    if metric is not None and spec.metric is not metric:
        raise InvalidParameter(
            f"index metric type of {computed_by} function output field must be {metric}, got {spec.metric}"
        )
    if spec.metric is Metric.BM25 and computed_by != BM25:
        raise InvalidParameter(
            "only BM25 Function output field support BM25 metric type: use IP for vectors that clients send"
        )
    if computed_by == MINHASH and spec.params[ELEMENT_BITS_KEY] != ELEMENT_BITS:
        raise InvalidParameter(
            f"{ELEMENT_BITS_KEY} of MinHash function output field must be {ELEMENT_BITS}, "
            f"got {spec.params[ELEMENT_BITS_KEY]}"
        )
