"""A search's highlighter: ``Highlighter`` messages to `Highlighting`, and fragments to ``HighlightResult``s.

The texts of errors are the reference's.
"""

from __future__ import annotations

from collections.abc import Mapping

from elanus.core.errors import InvalidParameter
from elanus.core.functions import BM25
from elanus.core.highlights import Highlighting
from elanus.core.json_texts import json_value
from elanus.core.schema import CollectionSchema, FieldSchema
from elanus.proxy.api.search import SearchResult
from elanus.proxy.wire.requests import to_dict
from elanus.proxy.wire.stubs import common_pb2, schema_pb2
from elanus.proxy.wire.unsupported import unsupported
from elanus.text import Highlight, check_highlighted

_PARAMS = frozenset(
    {
        "pre_tags",
        "post_tags",
        "highlight_search_text",
        "highlight_query",
        "fragment_offset",
        "fragment_size",
        "num_of_fragments",
    }
)
_QUERY_TYPE = "TextMatch"


def decode_highlighter(
    message: common_pb2.Highlighter, schema: CollectionSchema, field: FieldSchema, analyzer_name: str
) -> Highlight:
    """Return what to highlight, without the texts of the search. ``field``: the one that is searched.

    Raises `InvalidParameter` and `NotSupported`.
    """
    if message.type != common_pb2.Lexical:
        raise unsupported("a semantic highlighter", "use a lexical one")
    params = to_dict(message.params)
    for name in params:
        if name not in _PARAMS:
            raise InvalidParameter(
                f"unknown parameter {name} of a highlighter: use {', '.join(sorted(_PARAMS))}"
            )
    how = Highlighting(
        _flag(params, "highlight_search_text"),
        _queries(params),
        _tags(params, "pre_tags", "<em>"),
        _tags(params, "post_tags", "</em>"),
        _number(params, "fragment_size", 100, 1),
        _number(params, "fragment_offset", 0, 0),
        _number(params, "num_of_fragments", 5, 0),
    )
    searched = ""
    if how.of_search:
        function = schema.function_of(field)
        if function is None or function.kind != BM25:
            raise InvalidParameter(
                'Search highlight only support with metric type "BM25": '
                f"field {field.name} is not the output of a BM25 function"
            )
        searched = function.input
    asked = Highlight(how, searched, (), analyzer_name)
    for name in asked.fields:
        check_highlighted(schema, name)
    return asked


def add_highlights(data: schema_pb2.SearchResultData, result: SearchResult) -> None:
    """Fill the fragments of a search's hits in."""
    for name, of_hits in result.highlights.items():
        target = data.highlight_results.add(field_name=name)
        for found in of_hits:
            target.datas.add(fragments=found)


def _flag(params: Mapping[str, str], name: str) -> bool:
    value = params.get(name, "false").lower()
    if value not in ("true", "false"):
        raise InvalidParameter(f"unmarshal {name} as bool failed: {params[name]}")
    return value == "true"


def _number(params: Mapping[str, str], name: str, default: int, least: int) -> int:
    if name not in params:
        return default
    value = params[name]
    if not (value.isascii() and value.isdigit() and len(value) < 10) or int(value) < least:
        raise InvalidParameter(f"invalid {name}: {value}")
    return int(value)


def _list(params: Mapping[str, str], name: str, what: str) -> list[object]:
    try:
        values = json_value(params[name])
    except ValueError as error:
        raise InvalidParameter(f"unmarshal {what} failed: {error}") from None
    if not isinstance(values, list):
        raise InvalidParameter(f"unmarshal {what} failed: {params[name][:100]} is no array")
    return values


def _tags(params: Mapping[str, str], name: str, default: str) -> tuple[str, ...]:
    if name not in params:
        return (default,)
    tags = _list(params, name, f"{name} as string list")
    if not tags:
        raise InvalidParameter(f"{name} cannot be empty list")
    texts = tuple(tag for tag in tags if isinstance(tag, str))
    if len(texts) < len(tags):
        raise InvalidParameter(f"unmarshal {name} as string list failed: {params[name][:100]}")
    return texts


def _queries(params: Mapping[str, str]) -> tuple[tuple[str, str], ...]:
    if "highlight_query" not in params:
        return ()
    found = []
    for query in _list(params, "highlight_query", "highlight queries as json array"):
        if not isinstance(query, dict):
            raise _bad_query("item in array is not json object")
        for name in ("text", "type", "field"):
            if name not in query:
                raise _bad_query(f"must set `{name}` in query")
            if not isinstance(query[name], str):
                raise _bad_query(f"`{name}` must be string")
        if query["type"] != _QUERY_TYPE:
            raise _bad_query(f"invalid highlight query type: {query['type']}")
        found.append((query["field"], query["text"]))
    return tuple(found)


def _bad_query(why: str) -> InvalidParameter:
    return InvalidParameter(f"unmarshal highlight queries failed: {why}")
