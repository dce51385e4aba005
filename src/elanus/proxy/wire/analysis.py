"""The RPCs of text analysis."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pyarrow as pa

from elanus.core.errors import FieldNotFound, InvalidParameter
from elanus.core.functions import ENABLE_ANALYZER, enables_analyzer
from elanus.proxy.access.caller import Caller
from elanus.proxy.access.permission import NO_PRIVILEGE
from elanus.proxy.api.collections import CollectionVerbs
from elanus.proxy.wire.requests import database_of, rpc
from elanus.proxy.wire.status import success
from elanus.proxy.wire.stubs import milvus_pb2
from elanus.text import (
    Analyzer,
    Token,
    analyzer_from,
    analyzers_of,
    least_slop,
    term_ids,
    tokens_of_column,
)


class Analysis:
    def __init__(self, verbs: CollectionVerbs) -> None:
        self._verbs = verbs

    @rpc(
        "analyzer_params",
        "placeholder",
        "with_detail",
        "with_hash",
        "collection_name",
        "field_name",
        "analyzer_names",
        privilege=NO_PRIVILEGE,
        on="collection_name",
    )
    def RunAnalyzer(
        self, request: milvus_pb2.RunAnalyzerRequest, caller: Caller
    ) -> milvus_pb2.RunAnalyzerResponse:
        response = milvus_pb2.RunAnalyzerResponse(status=success())
        analyzers = self._analyzers(request, caller)
        for place, content in enumerate(request.placeholder):
            try:
                text = content.decode()
            except UnicodeDecodeError as error:
                raise InvalidParameter(f"text {place} is not valid UTF-8: {error}") from None
            tokens = analyzers[place if len(analyzers) > 1 else 0].tokens(text)
            _add(response.results.add(), tokens, request.with_detail, request.with_hash)
        return response

    @rpc("analyzer_params", "query_text", "data_texts", privilege=NO_PRIVILEGE)
    def ComputePhraseMatchSlop(
        self, request: milvus_pb2.ComputePhraseMatchSlopRequest, caller: Caller
    ) -> milvus_pb2.ComputePhraseMatchSlopResponse:
        analyzer = analyzer_from(request.analyzer_params)
        phrase = analyzer.tokens(request.query_text)
        if not phrase:
            raise InvalidParameter(f"query_text {request.query_text!r} has no tokens")
        words = pa.array([token.text for token in phrase], pa.string())
        offsets = np.array([token.position for token in phrase], dtype=np.int64)
        response = milvus_pb2.ComputePhraseMatchSlopResponse(status=success())
        for text in request.data_texts:
            slop = least_slop(tokens_of_column(pa.array([text]), analyzer), words, offsets)
            response.is_match.append(slop is not None)
            response.slops.append(slop or 0)
        return response

    def _analyzers(self, request: milvus_pb2.RunAnalyzerRequest, caller: Caller) -> Sequence[Analyzer]:
        """Return one analyzer for all texts, or one for each."""
        names = request.analyzer_names
        if not request.collection_name:
            if names:
                raise InvalidParameter("analyzer_names need a collection_name and a field_name")
            return (analyzer_from(request.analyzer_params),)
        view = self._verbs.describe_collection(database_of(request, caller), request.collection_name)
        field = view.schema.by_name.get(request.field_name)
        if field is None:
            raise FieldNotFound(f"field not found[field={request.field_name}]")
        if not enables_analyzer(field):
            raise InvalidParameter(
                f"field {field.name} of collection {view.name} does not enable analyzer: create it with "
                f"{ENABLE_ANALYZER}"
            )
        analyzers = analyzers_of(field)
        if not names:
            return (analyzers.named(""),)
        if len(names) not in (1, len(request.placeholder)):
            raise InvalidParameter(
                f"there are {len(names)} analyzer_names for {len(request.placeholder)} texts: send one, or "
                "one for each text"
            )
        return [analyzers.named(name) for name in names]


def _add(
    result: milvus_pb2.AnalyzerResult, tokens: Sequence[Token], with_detail: bool, with_hash: bool
) -> None:
    hashes = term_ids(pa.array([token.text for token in tokens], pa.string())).tolist() if with_hash else ()
    for place, token in enumerate(tokens):
        added = result.tokens.add(token=token.text)
        if with_detail:
            added.start_offset, added.end_offset = token.start, token.end
            added.position, added.position_length = token.position, 1
        if with_hash:
            added.hash = hashes[place]
