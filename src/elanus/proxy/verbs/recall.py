"""The recall of a search that asks for it: the search is repeated exactly, as of the same timestamp.

The managed service of the reference estimates it. Here it is the share of the true best rows that was found,
which takes as long as comparing all rows that match.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

from elanus.api.querynode import NodeHits, NodeSearch
from elanus.core.errors import InvalidParameter
from elanus.core.metrics import Metric
from elanus.core.recall import recall_of
from elanus.core.schema import FieldSchema
from elanus.core.trail import step
from elanus.index import true_params
from elanus.proxy.api.search import Search


def check_measurable(request: Search) -> None:
    """Raises `InvalidParameter` for a search whose recall cannot be measured."""
    asked = request.template
    if not asked.measures_recall:
        return
    for kind, is_such in (
        ("an iterator", request.iterates),
        ("groups", asked.grouping is not None),
        ("boosts", asked.boosts is not None),
        ("function chains", asked.chains is not None),
    ):
        if is_such:
            raise InvalidParameter(
                f"enable_recall_calculation [true] is not supported in a search with {kind}"
            )


def check_field_measurable(request: Search, field: FieldSchema) -> None:
    """Raises `InvalidParameter` for a field whose truth cannot be computed by comparing vectors."""
    if request.template.measures_recall and field.has_vector_lists:
        raise InvalidParameter(
            f"enable_recall_calculation [true] is not supported for the lists of vectors in {field.name}"
        )


def recalls_of(
    hits: NodeHits, request: NodeSearch, search: Callable[[NodeSearch], NodeHits]
) -> tuple[float, ...]:
    """Return the recall of each query. ``hits``: the answer to the ``request``."""
    step("measure recall")
    metric = Metric(hits.metric_type)
    truth = search(replace(request, params=true_params(metric, request.params), output_fields=()))
    found, true = hits.ids.tolist(), truth.ids.tolist()
    recalls = []
    for number in range(len(hits.offsets) - 1):
        of_hits = slice(hits.offsets[number], hits.offsets[number + 1])
        of_truth = slice(truth.offsets[number], truth.offsets[number + 1])
        recalls.append(
            recall_of(found[of_hits], hits.scores[of_hits], true[of_truth], truth.scores[of_truth])
        )
    return tuple(recalls)
