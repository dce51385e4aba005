"""Rankers as clients send them: pairs of names and texts, or functions.

Clients up to 2.5 describe the ranker of a hybrid search in its ``rank_params``: ``strategy`` (``rrf``, the
default, or ``weighted``), and a JSON object of ``params``. Newer ones send a ``function_score`` instead, with
one function or with several boosts; an ordinary search may carry one, too. A function's parameters are texts;
``reranker`` names it.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass

import msgspec

from elanus.core.errors import InvalidParameter
from elanus.core.rankers import BOOST_MODES, RRF_K, Decay, Ranker, Rrf, Weighted
from elanus.proxy.api.search import BoostRequest, BoostRequests
from elanus.proxy.wire.parameters import boolean, json_object
from elanus.proxy.wire.requests import enum_name, to_dict
from elanus.proxy.wire.stubs import schema_pb2
from elanus.proxy.wire.unsupported import unsupported

_NAME = "reranker"
_NO_MODELS = "rank the hits in the client, with the model that it would have named"


@dataclass(frozen=True, slots=True)
class FunctionScore:
    """The contents of a ``function_score``: at most one ranker, and boosts."""

    ranker: Ranker | None = None
    boosts: BoostRequests | None = None


def legacy_ranker(pairs: Mapping[str, str]) -> Ranker:
    """Return the ranker that ``rank_params`` describe. Raises `InvalidParameter`."""
    strategy = pairs.get("strategy", "rrf").lower()
    params = json_object(pairs.get("params", ""), "params")
    if strategy == "rrf":
        k = params.get("k", RRF_K)
        if isinstance(k, bool) or not isinstance(k, int | float):
            raise InvalidParameter("The type of rank param k should be float")
        return Rrf(float(k), _weights(params["weights"]) if "weights" in params else None)
    if strategy == "weighted":
        if "weights" not in params:
            raise InvalidParameter("weights not found in rank_params")
        return Weighted(_weights(params["weights"]), _norm_score(params.get("norm_score", False)))
    raise InvalidParameter(f"unsupported rank type {strategy}")


def function_score(message: schema_pb2.FunctionScore) -> FunctionScore:
    """Raises `InvalidParameter`, and `NotSupported` for models."""
    rankers: list[Ranker] = []
    boosts: list[BoostRequest] = []
    if not message.functions:
        raise InvalidParameter("function_score has no functions: send a reranker, or leave it out")
    for function in message.functions:
        if function.type != schema_pb2.Rerank:
            raise InvalidParameter(
                f"{enum_name(schema_pb2.FunctionType, function.type)} is not rerank function: "
                f"function {function.name}"
            )
        params = {name.lower(): text for name, text in to_dict(function.params).items()}
        fields = tuple(function.input_field_names)
        match params.get(_NAME, "").lower():
            case "boost":
                _check_no_inputs("boost", fields)
                boosts.append(_boost(params))
            case "rrf":
                _check_no_inputs("rrf", fields)
                rankers.append(Rrf(_number(params, "k", RRF_K), _sent_weights(params)))
            case "weighted":
                _check_no_inputs("weighted", fields)
                rankers.append(_weighted(params))
            case "decay":
                rankers.append(_decay(params, fields))
            case "":
                raise InvalidParameter("reranker name not specified: the function has no parameter reranker")
            case "model":
                raise unsupported("the reranker model", _NO_MODELS)
            case other:
                raise InvalidParameter(f"unsupported reranker {other}: use rrf, weighted, decay or boost")
    if len(rankers) > 1:
        raise InvalidParameter(f"Currently only supports one rerank, but got {len(rankers)}")
    if not boosts:
        return FunctionScore(rankers[0])
    options = {name.lower(): text for name, text in to_dict(message.params).items()}
    return FunctionScore(
        rankers[0] if rankers else None,
        BoostRequests(tuple(boosts), _mode(options, "boost_mode"), _mode(options, "function_mode")),
    )


def _check_no_inputs(name: str, fields: tuple[str, ...]) -> None:
    if fields:
        raise InvalidParameter(
            f"The {name} function does not support input parameters, but got [{' '.join(fields)}]"
        )


def _weighted(params: Mapping[str, str]) -> Weighted:
    weights = _sent_weights(params)
    if weights is None:
        raise InvalidParameter("weights not found")
    return Weighted(weights, boolean(params, "norm_score"))


def _sent_weights(params: Mapping[str, str]) -> tuple[float, ...] | None:
    if "weights" not in params:
        return None
    try:
        weights = msgspec.json.decode(params["weights"])
    except msgspec.MsgspecError:
        weights = None
    return _weights(weights)


def _weights(value: object) -> tuple[float, ...]:
    if not isinstance(value, list) or not all(
        isinstance(weight, int | float) and not isinstance(weight, bool) for weight in value
    ):
        raise InvalidParameter(f"Parse weights param failed, weight should be []float, but got: {value}")
    return tuple(float(weight) for weight in value)


def _norm_score(value: object) -> bool:
    if isinstance(value, str):
        return boolean({"norm_score": value}, "norm_score")
    if not isinstance(value, bool):
        raise InvalidParameter("The type of rank param norm_score should be bool")
    return value


def _decay(params: Mapping[str, str], fields: tuple[str, ...]) -> Decay:
    if len(fields) != 1:
        named = " ".join(fields)
        raise InvalidParameter(f"Decay function only supoorts single input, but gets [[{named}]] input")
    for name in ("function", "origin", "scale"):
        if name not in params:
            raise InvalidParameter(f"Decay function lost param: {name}")
    return Decay(
        field=fields[0],
        curve=params["function"].lower(),
        origin=_number(params, "origin", 0.0),
        scale=_number(params, "scale", 0.0),
        offset=_number(params, "offset", 0.0),
        decay=_number(params, "decay", 0.5),
        score_mode=params.get("score_mode", "max").lower(),
        normalized=boolean(params, "norm_score"),
    )


def _boost(params: Mapping[str, str]) -> BoostRequest:
    if "weight" not in params:
        raise InvalidParameter("must set weight params for weight scorer")
    weight = _number(params, "weight", 1.0)
    if not math.isfinite(weight):
        raise InvalidParameter(f"Param weight:{params['weight']} is not a finite number")
    chance = params.get("random_score")
    if chance is None:
        return BoostRequest(params.get("filter", ""), weight)
    members = json_object(chance, "random_score")
    seed, field = members.get("seed", 0), members.get("field", "")
    if isinstance(seed, bool) or not isinstance(seed, int):
        raise InvalidParameter("random seed must be number")
    if not isinstance(field, str):
        raise InvalidParameter("random seed field must be string")
    seed %= 2**64  # what random numbers depend on
    return BoostRequest(params.get("filter", ""), weight, is_random=True, seed=seed, random_field=field)


def _mode(options: Mapping[str, str], name: str) -> str:
    mode = options.get(name, "multiply").lower()
    if mode not in BOOST_MODES:
        raise InvalidParameter(f"unknown {name.replace('_', ' ')}: {mode}")
    return mode


def _number(params: Mapping[str, str], name: str, default: float) -> float:
    if name not in params:
        return default
    try:
        return float(params[name])
    except ValueError:
        raise InvalidParameter(f"Param {name}:{params[name]} is not a number") from None
